"""The values of settings that can be maximised, in ascending order, each as a change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vramwise.models.known import catalogue_ids, from_catalogue
from vramwise.models.parameters import parameter_count
from vramwise.types import Change, ModelSpec, RunSpec
from vramwise.variants.changes.base import kind

# No card fits more rows at once.
_MOST_ROWS = 4096
_ROWS_STEP = 64
_HIGHEST_RANK = 1024
# The size in a model's name: 8B, 0.5B, 1.7b; and the version before it.
_NUMBERS = re.compile(r"\d+(\.\d+)*[bBmM]?")

BATCH, LENGTH, RANK, MODEL = map(kind, ("largest-micro-batch", "longest-rows", "highest-rank", "largest-model"))
Ladder = Callable[[RunSpec, ModelSpec], Iterator[Change]]


def _batches(run: RunSpec, _: ModelSpec) -> Iterator[Change]:
    """Yield micro-batches; the effective batch stays if it is divisible, else the accumulation stays."""
    product = run.batch.micro_batch_size * run.batch.gradient_accumulation_steps
    for micro in range(1, _MOST_ROWS + 1):
        fields: dict[str, Any] = {"micro_batch_size": micro}
        kept = product % micro == 0
        if kept:
            fields["gradient_accumulation_steps"] = product // micro
        each = fields.get("gradient_accumulation_steps", run.batch.gradient_accumulation_steps)
        effective = micro * each * run.batch.data_parallel
        batch = (
            "the same effective batch" if kept else f"effective batch {run.batch.effective_batch_size} → {effective}"
        )
        yield BATCH.to(f"Micro-batch {run.batch.micro_batch_size} → {micro} × accumulation {each}: {batch}", **fields)


def _lengths(run: RunSpec, model: ModelSpec) -> Iterator[Change]:
    most = max(model.max_position_embeddings, run.shapes.sequence_len)
    for length in sorted({*range(_ROWS_STEP, most + 1, _ROWS_STEP), run.shapes.sequence_len}):
        yield LENGTH.to(f"Rows of {run.shapes.sequence_len} → {length} tokens", sequence_len=length)


def _ranks(run: RunSpec, _: ModelSpec) -> Iterator[Change]:
    if run.adapter.kind is None or run.adapter.lora_r is None:
        return
    for rank in sorted({*(2**power for power in range(_HIGHEST_RANK.bit_length())), run.adapter.lora_r}):
        fields: dict[str, Any] = {"lora_r": rank}
        if run.adapter.lora_alpha is not None:
            alpha = run.adapter.lora_alpha * rank / run.adapter.lora_r
            fields["lora_alpha"] = int(alpha) if alpha == int(alpha) else alpha
        yield RANK.to(f"Rank {run.adapter.lora_r} → {rank}", **fields)


def _models(run: RunSpec, model: ModelSpec) -> Iterator[Change]:
    """Yield catalogue models whose name differs only in its numbers, of the same architecture, by size."""
    name = run.base_model or ""
    sizes: dict[int, str] = {parameter_count(model): name}
    for other in catalogue_ids():
        if _without_numbers(other) == _without_numbers(name):
            found = from_catalogue(other)
            if found is not None and found.model_type == model.model_type and not found.checkpoint_quantization:
                sizes.setdefault(parameter_count(found), other)
    for _, other in sorted(sizes.items()):
        yield MODEL.to(f"{name} → {other}", base_model=other)


def _without_numbers(name: str) -> str:
    return _NUMBERS.sub("", name).lower()


# RunSpec's field → its values in ascending order.
LADDERS: Mapping[str, Ladder] = {
    "micro_batch_size": _batches,
    "sequence_len": _lengths,
    "lora_r": _ranks,
    "base_model": _models,
}


def ladder(run: RunSpec, model: ModelSpec, field: str) -> Sequence[Change]:
    """Return every value of a setting, the smallest first, including the run's own."""
    return tuple(LADDERS[field](run, model))


def is_present(run: RunSpec, change: Change) -> bool:
    """Return whether the run already has the values of a change."""
    return all(run.value(name) == value for name, value in change.fields.items())
