"""refused-arguments"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """What TRL, transformers or PEFT refuse, the key to show, and why."""

    key: str
    why: str
    holds: Callable[[RunSpec], object]


def _packs(run: RunSpec) -> bool:
    return run.sample_packing


_REFUSALS = (
    _Refusal(
        key="fp16",
        why="fp16 and bf16 are both on: at most one can be",
        holds=lambda run: run.config.get("fp16") and run.config.get("bf16"),
    ),
    _Refusal(
        key="load_in_8bit",
        why="load_in_8bit and load_in_4bit are both on: at most one can be",
        holds=lambda run: run.config.get("load_in_8bit") and run.config.get("load_in_4bit"),
    ),
    _Refusal(
        key="load_in_4bit",
        why="a quantised base cannot be trained itself: it needs use_peft",
        holds=lambda run: run.quantization is not None and run.adapter is None,
    ),
    _Refusal(
        key="max_length",
        why="packing needs a max_length: rows are filled up to it",
        holds=lambda run: _packs(run) and "max_length" in run.config and run.config.get("max_length") is None,
    ),
    _Refusal(
        key="padding_free",
        why="padding_free without packing does not enforce max_length: TRL wants packing, or max_length null",
        holds=lambda run: (
            run.config.get("padding_free")
            and run.objective == "tokens"
            and not _packs(run)
            and not ("max_length" in run.config and run.config.get("max_length") is None)
        ),
    ),
    _Refusal(
        key="liger_kernel_config",
        why="Liger's fused_linear_cross_entropy replaces the forward that TRL's own fused head stands in",
        holds=lambda run: (
            run.config.get("use_liger_kernel") and run.config.get("liger_kernel_config.fused_linear_cross_entropy")
        ),
    ),
    _Refusal(
        key="dataloader_prefetch_factor",
        why="dataloader_prefetch_factor needs dataloader_num_workers above 0",
        holds=lambda run: run.config.get("dataloader_prefetch_factor") and not run.config.get("dataloader_num_workers"),
    ),
    _Refusal(
        key="num_generations",
        why="the completions of one generation must be a multiple of num_generations",
        holds=lambda run: (
            run.generation_rows is not None and run.generation_rows * run.data_parallel % run.rows_per_prompt != 0
        ),
    ),
    _Refusal(
        key="per_device_train_batch_size",
        why="KTO's term for divergence needs more than one row a batch",
        holds=lambda run: (
            run.objective == "kto" and run.micro_batch_size == 1 and run.config.get("loss_type") != "apo_zero_unpaired"
        ),
    ),
    _Refusal(
        key="sync_ref_model",
        why="sync_ref_model needs a reference model of its own, which a run with an adapter has not",
        holds=lambda run: run.config.get("sync_ref_model") and run.adapter is not None,
    ),
)


@rule(
    id="refused-arguments",
    severity=Severity.ERROR,
    topic="config",
    bad=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\npacking: true\n"
        "max_length: null\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\npacking: true\n"
        "max_length: 2048\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that TRL refuses together.

    The checks stand in transformers' TrainingArguments, in TRL's configs and in the constructors of its trainers, so
    some of them speak only after the model is loaded. Each finding says which two do not go together.
    """
    for refusal in _REFUSALS:
        if refusal.holds(run):
            yield Hit(key=refusal.key, near=("base_model",), message=f"{refusal.why}: TRL stops")
