"""LLaMA-Factory's own rules of one condition and one sentence: precision."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, unsafe
from vramwise.rules.rows import row
from vramwise.types import Fix, RunSpec, Severity
from vramwise.variants import changes

_row = partial(row, topic="precision")


def _pure_bf16(run: RunSpec) -> Fix | None:
    gpu = run.target.gpu
    if run.precision.compute != "bf16" or (gpu is not None and not gpu.bf16):
        return None
    edits = (insert_key("pure_bf16", True, beside="bf16"), delete_key("bf16"))
    return unsafe("Train in bf16 alone: pure_bf16", *edits)


fp32_masters = _row(
    id="fp32-masters",
    severity=Severity.WARNING,
    costs_memory=True,
    text="""bf16 in a full fine-tune: what is trained is in fp32 all the same.

    LLaMA-Factory loads the checkpoint in its own type and casts all that is trained to fp32; `bf16: true` adds autocast
    around it. Weights, gradients and both of AdamW's states then take 4 bytes each, 16 bytes a parameter, and autocast
    keeps bf16 copies of weights beside them. With `pure_bf16: true` all four stay in bf16: 8 bytes a parameter, at the
    price of updates that bf16 rounds away; it is another training, so it is offered and never made by itself.

    Not reported under ZeRO and FSDP, which spread the copies over the cards, nor for adapters, whose fp32 is small.
    """,
    bad="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
    "template: qwen3\nbf16: true\n",
    good="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
    "template: qwen3\npure_bf16: true\n",
    when=lambda run: (
        run.adapter.kind is None
        and run.loading.trains_in_fp32
        and run.sharding.kind in ("none", "ddp")
        and run.precision.compute in ("bf16", "fp16", "fp8")
    ),
    field="precision",
    message=lambda run: (
        f"{run.keys['precision']} in a fine-tune of "
        f"{'some blocks' if run.config.get('finetuning_type') == 'freeze' else 'everything'}: weights, gradients and "
        "optimizer states of what is trained are in fp32, 16 bytes a parameter; pure_bf16 makes it 8"
    ),
    fix=_pure_bf16,
)

mixed_types_without_autocast = _row(
    id="mixed-types-without-autocast",
    text="""Some blocks are trained in fp32 behind frozen ones in bf16, without autocast.

    `finetuning_type: freeze` casts the trained blocks to fp32 and leaves the frozen ones in the checkpoint's type. With
    neither `bf16` nor `fp16` nothing casts the activations between them: the first trained linear layer meets bf16
    inputs with fp32 weights and torch stops with `mat1 and mat2 must have the same dtype`. Checkpoints that are stored
    in fp32 are the exception.

    Write `bf16: true`, or `pure_bf16: true` to leave everything in bf16.
    """,
    bad="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: freeze\ndataset: identity\n"
    "template: qwen3\n",
    good="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: freeze\ndataset: identity\n"
    "template: qwen3\nbf16: true\n",
    beyond_trainer="LLaMA-Factory only recommends mixed precision, and the first forward pass stops.",
    when=lambda run: (
        run.config.get("finetuning_type") == "freeze" and not run.precision.autocast and run.loading.trains_in_fp32
    ),
    key="finetuning_type",
    message=(
        "finetuning_type freeze without bf16 or fp16: trained blocks are in fp32, frozen ones in the checkpoint's "
        "type, and the first forward pass stops where they meet"
    ),
    change=changes.train_in_bf16,
)
