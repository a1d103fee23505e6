"""fp32-masters"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Fix, RunSpec, Severity


@rule(
    id="fp32-masters",
    severity=Severity.WARNING,
    costs_memory=True,
    topic="precision",
    bad=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
        "template: qwen3\nbf16: true\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
        "template: qwen3\npure_bf16: true\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """bf16 in a full fine-tune: what is trained is in fp32 all the same.

    LLaMA-Factory loads the checkpoint in its own type and casts all that is trained to fp32; `bf16: true` adds autocast
    around it. Weights, gradients and both of AdamW's states then take 4 bytes each, 16 bytes a parameter, and autocast
    keeps bf16 copies of weights beside them. With `pure_bf16: true` all four stay in bf16: 8 bytes a parameter, at the
    price of updates that bf16 rounds away; it is another training, so it is offered and never made by itself.

    Not reported under ZeRO and FSDP, which spread the copies over the cards, nor for adapters, whose fp32 is small.
    """
    if run.adapter.kind is not None or not run.loading.trains_in_fp32 or run.sharding.kind not in ("none", "ddp"):
        return
    if run.precision.compute not in ("bf16", "fp16", "fp8"):
        return
    what = "some blocks" if run.config.get("finetuning_type") == "freeze" else "everything"
    message = (
        f"{run.keys['precision']} in a fine-tune of {what}: weights, gradients and optimizer states of what is trained "
        "are in fp32, 16 bytes a parameter; pure_bf16 makes it 8"
    )
    yield Hit(field="precision", message=message, fix=_fix(run))


def _fix(run: RunSpec) -> Fix | None:
    gpu = run.target.gpu
    if run.precision.compute != "bf16" or (gpu is not None and not gpu.bf16):
        return None
    edits = (insert_key("pure_bf16", True, beside="bf16"), delete_key("bf16"))
    return unsafe("Train in bf16 alone: pure_bf16", *edits)
