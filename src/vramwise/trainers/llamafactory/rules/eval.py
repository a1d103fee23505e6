"""LLaMA-Factory's own rules about evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"


@rule(
    id="held-out-never-evaluated",
    severity=Severity.WARNING,
    bad=f"{_BASE}val_size: 0.1\n",
    good=f"{_BASE}val_size: 0.1\neval_strategy: steps\neval_steps: 500\nper_device_eval_batch_size: 8\n",
    beyond_trainer="LLaMA-Factory holds the samples out and never uses them.",
)
def held_out_never_evaluated(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Samples are held out, but nothing evaluates on them.

    `val_size` takes samples out of training and `eval_dataset` prepares a second dataset; evaluation runs only if
    `eval_strategy` schedules it, or `do_eval` requests it at the end. Without either, the samples are lost for
    training. Check the batch size when you add one: evaluation uses 8 rows unless `per_device_eval_batch_size` is set.
    """
    held = run.config.get("val_size")
    key = "val_size" if held else "eval_dataset" if run.config.get("eval_dataset") else None
    if key is None or run.evaluation.evaluates or run.config.get("do_predict") or not run.config.get("do_train"):
        return
    lost = f"{key} {held} is held out" if key == "val_size" else f"{key} is prepared"
    yield Hit(f"{lost}, but neither eval_strategy nor do_eval ever evaluates on it", key)
