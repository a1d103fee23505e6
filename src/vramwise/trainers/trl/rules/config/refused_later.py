"""refused-later"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.trl.keys import project_of
from vramwise.types import RunSpec, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A setting that TRL's trainers or PEFT refuse after the model is loaded: the key to show, and why."""

    key: str
    why: str
    holds: Callable[[RunSpec], object]


def _packs(run: RunSpec) -> bool:
    return run.shapes.sample_packing


def _scales(run: RunSpec) -> bool:
    """Return whether gradients are scaled: fp16 under autocast."""
    return run.precision.compute == "fp16" and run.precision.autocast


def _open(run: RunSpec, key: str) -> bool:
    script = run.config.document.script
    return script is not None and script.leaves_open(key)


def _no_data(run: RunSpec) -> bool:
    values = run.config.document.values
    return not (values.get("dataset_name") or values.get("datasets") or project_of(values))


_REFUSALS = (
    _Refusal(key="model_name_or_path", why="no model is set", holds=lambda run: run.base_model is None),
    _Refusal(
        key="dataset_name", why="neither dataset_name nor datasets is set: there is nothing to train on", holds=_no_data
    ),
    _Refusal(
        key="load_in_4bit",
        why="a quantised base cannot be trained directly: set use_peft",
        holds=lambda run: (
            run.loading.quantization is not None and run.adapter.kind is None and not _open(run, "use_peft")
        ),
    ),
    _Refusal(
        key="max_length",
        why="packing needs a max_length: rows are filled up to it",
        holds=lambda run: _packs(run) and "max_length" in run.config and run.config.get("max_length") is None,
    ),
    _Refusal(
        key="padding_free",
        why="padding_free without packing does not enforce max_length: TRL requires packing, or max_length null",
        holds=lambda run: (
            run.config.get("padding_free")
            and run.objective.kind == "tokens"
            and not _packs(run)
            and not ("max_length" in run.config and run.config.get("max_length") is None)
        ),
    ),
    _Refusal(
        key="lora_target_modules",
        why="an adapter on lm_head: the loss is taken from the head's own weight, past the adapter",
        holds=lambda run: (
            run.adapter.kind and run.objective.kind != "reward" and "lm_head" in run.adapter.lora_target_modules
        ),
    ),
    _Refusal(
        key="liger_kernel_config",
        why="Liger's fused_linear_cross_entropy replaces the forward pass that TRL's own fused head needs",
        holds=lambda run: (
            run.config.get("use_liger_kernel") and run.config.get("liger_kernel_config.fused_linear_cross_entropy")
        ),
    ),
    _Refusal(
        key="per_device_train_batch_size",
        why="KTO's KL term needs more than one row per batch",
        holds=lambda run: (
            run.objective.kind == "kto"
            and run.batch.micro_batch_size == 1
            and run.config.get("loss_type") != "apo_zero_unpaired"
        ),
    ),
    _Refusal(
        key="fp16",
        why=(
            "fp16 with an adapter on a quantised base: TRL turns the adapter into bf16, and fp16's loss scaling does "
            "not work with bf16 gradients"
        ),
        holds=lambda run: run.adapter.half_adapters and _scales(run),
    ),
    _Refusal(
        key="sync_ref_model",
        why="sync_ref_model needs a separate reference model, which a run with an adapter does not have",
        holds=lambda run: run.config.get("sync_ref_model") and run.adapter.kind is not None,
    ),
)


@rule(
    id="refused-later",
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
    beyond_trainer="TRL's parser accepts the file, but its trainer stops once the model is loaded.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that TRL's trainers reject together, after the model is loaded.

    The constructors of TRL's trainers and PEFT make these checks. The parser accepts the file, the model is downloaded
    and loaded, and then the run stops. Each finding names the two options that conflict.
    """
    for refusal in _REFUSALS:
        if refusal.holds(run):
            yield Hit(key=refusal.key, message=f"{refusal.why}: TRL stops")
