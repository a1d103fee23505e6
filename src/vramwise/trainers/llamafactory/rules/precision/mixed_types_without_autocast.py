"""mixed-types-without-autocast"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="mixed-types-without-autocast",
    severity=Severity.ERROR,
    topic="precision",
    bad=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: freeze\ndataset: identity\n"
        "template: qwen3\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: freeze\ndataset: identity\n"
        "template: qwen3\nbf16: true\n"
    ),
    beyond_trainer="LLaMA-Factory only recommends mixed precision, and the first forward pass stops.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Some blocks are trained in fp32 behind frozen ones in bf16, without autocast.

    `finetuning_type: freeze` casts the trained blocks to fp32 and leaves the frozen ones in the checkpoint's type. With
    neither `bf16` nor `fp16` nothing casts the activations between them: the first trained linear layer meets bf16
    inputs with fp32 weights and torch stops with `mat1 and mat2 must have the same dtype`. Checkpoints that are stored
    in fp32 are the exception.

    Write `bf16: true`, or `pure_bf16: true` to leave everything in bf16.
    """
    if run.config.get("finetuning_type") != "freeze" or run.precision.autocast or not run.loading.trains_in_fp32:
        return
    message = (
        "finetuning_type freeze without bf16 or fp16: trained blocks are in fp32, frozen ones in the checkpoint's "
        "type, and the first forward pass stops where they meet"
    )
    yield Hit(key="finetuning_type", message=message, change=changes.train_in_bf16(run))
