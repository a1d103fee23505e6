"""A run that does not fit: which changes that keep the training result would make it fit, each with its prediction.

Keeps the result: micro-batch against accumulation, recomputing activations, a fused loss kernel, a smaller eval batch,
the allocator. Each is tried alone; where none is enough, also all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from vramwise.documents.edit import apply_edits
from vramwise.subject import resolve
from vramwise.training.parent.decide import EXPANDABLE
from vramwise.types import Document, Edit, RunSpec
from vramwise.variants.prediction import Prediction

_LIGER_PLUGIN = "axolotl.integrations.liger.LigerPlugin"
Predict = Callable[[RunSpec], Prediction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Config values to set, or allocator settings."""

    title: str
    values: tuple[tuple[str, Any], ...] = ()
    allocator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change and what is predicted with it."""

    title: str
    prediction: Prediction

    @property
    def fits(self) -> bool:
        """Whether it would run."""
        return self.prediction.fits is True


def remedies(document: Document, run: RunSpec, predict: Predict) -> list[Remedy]:
    """What would help, least intrusive first; those that fit, or everything tried and all of it together."""
    apply = _Applier(document, run, predict)
    tried = [apply(change) for change in _changes(run)]
    tried += _smaller_micro(run, apply, ())
    if not any(one.fits for one in tried):
        everything = tuple(_changes(run))
        if everything:
            tried += [apply(*everything)] if run.micro_batch_size == 1 else _smaller_micro(run, apply, everything)
    return tried


def _changes(run: RunSpec) -> Iterator[Change]:
    if "expandable_segments:True" not in run.allocator:
        yield Change(title=f"--alloc-conf {EXPANDABLE}", allocator=EXPANDABLE)
    if run.eval_batch_size is not None and run.eval_batch_size > run.micro_batch_size:
        yield Change(
            title=f"eval_batch_size: {run.micro_batch_size}", values=(("eval_batch_size", run.micro_batch_size),)
        )
    if run.loss_kernel == "stock":
        plugins = [*run.config.get("plugins", ()), _LIGER_PLUGIN]
        key = "liger_fused_linear_cross_entropy"
        yield Change(title=f"LigerPlugin and {key}: true", values=(("plugins", plugins), (key, True)))
    if not run.recompute:
        yield Change(title="gradient_checkpointing: true", values=(("gradient_checkpointing", True),))


def _smaller_micro(run: RunSpec, apply: _Applier, others: tuple[Change, ...]) -> list[Remedy]:
    """Halve the micro-batch until it fits; gives the first that does, else the smallest."""
    micro, accumulation = run.micro_batch_size, run.gradient_accumulation_steps
    found: list[Remedy] = []
    while micro > 1 and not (found and found[0].fits):
        product = micro * accumulation
        micro = next(size for size in range(micro // 2, 0, -1) if product % size == 0)
        accumulation = product // micro
        title = f"micro_batch_size: {micro}, gradient_accumulation_steps: {accumulation}"
        values = [("micro_batch_size", micro), ("gradient_accumulation_steps", accumulation)]
        if run.eval_batch_size is not None and run.eval_batch_size > micro:
            values.append(("eval_batch_size", micro))
            title += f", eval_batch_size: {micro}"
        kept = tuple(one for one in others if not one.title.startswith("eval_batch_size"))
        found = [apply(*kept, Change(title=title, values=tuple(values)))]
    return found


class _Applier:
    """Applies changes to the config in memory and predicts."""

    def __init__(self, document: Document, run: RunSpec, predict: Predict) -> None:
        self._document = document
        self._run = run
        self._predict = predict

    def __call__(self, *changes: Change) -> Remedy:
        edits = [Edit(op="insert", key=key, value=value) for change in changes for key, value in change.values]
        document = apply_edits(self._document, edits) if edits else self._document
        allocators = [change.allocator for change in changes if change.allocator]
        resolved = resolve(document, self._run.target)
        decided = replace(
            resolved,
            allocator=allocators[-1] if allocators else self._run.allocator,
            precision=self._run.precision,
            weights_dtype=self._run.weights_dtype,
            autocast=self._run.autocast,
            sequence_len=self._run.sequence_len,
            eval_sequence_len=self._run.eval_sequence_len,
        )
        if not self._run.evaluates:  # no evaluation is scheduled, whatever the config holds out
            decided = replace(decided, evaluates=False, eval_batch_size=None, eval_sequence_len=None)
        return Remedy(title=" + ".join(change.title for change in changes), prediction=self._predict(decided))
