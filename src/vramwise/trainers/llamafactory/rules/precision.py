"""LLaMA-Factory's own rules about number formats: fp32 masters, and mixed types without autocast."""

from __future__ import annotations

from vramwise.rules.base import delete_key, insert_key, unsafe
from vramwise.rules.rows import row
from vramwise.types import Fix, RunSpec, Severity
from vramwise.variants import changes


def _pure_bf16(run: RunSpec) -> Fix | None:
    gpu = run.target.gpu
    if run.precision.compute != "bf16" or (gpu is not None and not gpu.bf16):
        return None
    edits = (insert_key("pure_bf16", True, beside="bf16"), delete_key("bf16"))
    return unsafe("Train purely in bf16: pure_bf16", *edits)


fp32_masters = row(
    id="fp32-masters",
    severity=Severity.WARNING,
    costs_memory=True,
    text="""bf16 in a full fine-tune: trained weights are still fp32.

    LLaMA-Factory loads the checkpoint in its own type and casts all trained weights to fp32; `bf16: true` only adds
    autocast. Weights, gradients and both AdamW states then take 4 bytes each, 16 bytes per parameter, and autocast
    keeps additional bf16 copies of weights. With `pure_bf16: true` all four stay in bf16: 8 bytes per parameter, but
    small updates are lost to rounding. This changes the training, so it is never applied automatically.

    Not reported under ZeRO and FSDP, which shard the copies over the cards, nor for adapters, which are small.
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
        f"{'some blocks' if run.config.get('finetuning_type') == 'freeze' else 'everything'}: trained weights, their "
        "gradients and optimizer states are in fp32, 16 bytes per parameter; pure_bf16 reduces it to 8"
    ),
    fix=_pure_bf16,
)

mixed_types_without_autocast = row(
    id="mixed-types-without-autocast",
    text="""Some blocks are trained in fp32 after frozen ones in bf16, without autocast.

    `finetuning_type: freeze` casts the trained blocks to fp32 and leaves the frozen ones in the checkpoint's type. With
    neither `bf16` nor `fp16` nothing casts the activations between them: the first trained linear layer gets bf16
    inputs for fp32 weights, and torch stops with `mat1 and mat2 must have the same dtype`. Checkpoints that are stored
    in fp32 are the exception.

    Set `bf16: true`, or `pure_bf16: true` to keep everything in bf16.
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

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"

fp32_norms_without_autocast = row(
    id="fp32-norms-without-autocast",
    text="""`upcast_layernorm` without autocast: fp32 norms feed bf16 linear layers.

    `upcast_layernorm` casts the weights of norms to fp32. With `pure_bf16`, or with neither `bf16` nor `fp16`, nothing
    casts activations: the first norm of Llama, Qwen, Mistral and most others returns fp32, and the linear layer behind
    it stops with `expected mat1 and mat2 to have the same dtype, but got: float != c10::BFloat16` (measured on 0.9.5).
    Gemma's norms return the type of their input, and linear layers of a quantised base cast theirs: no error there.

    Leave `upcast_layernorm` out, or set `bf16: true` instead of `pure_bf16`.
    """,
    bad=_BASE + "template: qwen3\npure_bf16: true\nupcast_layernorm: true\n",
    good=_BASE + "template: qwen3\nbf16: true\nupcast_layernorm: true\n",
    beyond_trainer="LLaMA-Factory casts the norms, and the first forward pass stops.",
    when=lambda run: (
        "norm" in run.loading.upcasts_at_load
        and run.loading.quantization is None
        and not run.precision.autocast
        and run.precision.compute != "fp32"
        and "gemma" not in str(run.base_model).lower()
    ),
    key="upcast_layernorm",
    message=(
        "upcast_layernorm without bf16 or fp16 autocast: norms return fp32, and the linear layer behind the first one "
        "stops because its weights are in half precision"
    ),
    fix=lambda run: unsafe("Leave norms in the weights' type", delete_key("upcast_layernorm")),
)
