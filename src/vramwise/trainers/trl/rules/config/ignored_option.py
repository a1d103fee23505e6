"""ignored-option"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ignored:
    """A key that is read but has no effect, and what it would need."""

    key: str
    why: str
    holds: Callable[[RunSpec], object]
    harmless: bool = False  # it has another useful effect


_IGNORED = (
    _Ignored(
        key="use_liger_kernel",
        why="Liger's loss stays off because TRL has its own fused head; only the layers change",
        holds=lambda run: run.config.get("use_liger_kernel") and run.kernels.loss_kernel == "tiled",
        harmless=True,
    ),
    _Ignored(
        key="packing_strategy",
        why="packing is off, so no strategy is used",
        holds=lambda run: run.objective.kind == "tokens" and not run.shapes.sample_packing,
    ),
    _Ignored(
        key="per_device_eval_batch_size",
        why="eval_strategy is no, so nothing is evaluated",
        holds=lambda run: not run.evaluation.evaluates,
    ),
    _Ignored(
        key="eval_steps",
        why="eval_strategy is no, so nothing is evaluated",
        holds=lambda run: not run.evaluation.evaluates,
    ),
    _Ignored(
        key="do_eval",
        why="do_eval alone evaluates nothing: eval_strategy decides",
        holds=lambda run: run.config.get("do_eval") and not run.evaluation.evaluates,
    ),
    _Ignored(
        key="gradient_checkpointing_kwargs",
        why="gradient_checkpointing is off",
        holds=lambda run: not run.savings.gradient_checkpointing,
    ),
    _Ignored(
        key="use_bnb_nested_quant",
        why="load_in_4bit is off, so there are no scales to pack",
        holds=lambda run: run.config.get("use_bnb_nested_quant") and run.loading.quantization != "4bit",
    ),
    _Ignored(
        key="vllm_gpu_memory_utilization",
        why="use_vllm is off, so the policy generates completions itself",
        holds=lambda run: run.objective.generation_rows is not None and run.objective.engine == "policy",
    ),
    _Ignored(
        key="gradient_checkpointing_kwargs.use_reentrant",
        why="LoRA under ZeRO 3 always uses reentrant checkpointing",
        holds=lambda run: (
            run.config.get("gradient_checkpointing_kwargs.use_reentrant") is False
            and run.adapter.kind is not None
            and run.sharding.kind == "zero3"
        ),
    ),
)


@rule(
    id="ignored-option",
    severity=Severity.INFO,
    topic="config",
    bad=("model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\npacking_strategy: bfd\n"),
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n",
    beyond_trainer="TRL reads the key, but it has no effect here.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An option that changes nothing here.

    The option depends on something that is off, or TRL does the same thing in another way. It is harmless, but does
    not save the memory you may expect: since TRL 1.15, `use_liger_kernel` no longer changes the loss, which TRL
    computes without logits anyway. It still changes the kernels of the layers, so it is reported only with
    `--pedantic`.
    """
    for ignored in _IGNORED:
        if ignored.key in run.config and ignored.holds(run):
            message = f"{ignored.key} has no effect: {ignored.why}"
            yield Hit(key=ignored.key, message=message, pedantic=ignored.harmless)
