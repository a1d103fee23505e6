"""fp16-full-finetune"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.attention import uses_flash_library
from vramwise.types import Fix, RunSpec, Severity

_UNSCALE = "`Attempting to unscale FP16 gradients`"
_MISMATCH = "`expected mat1 and mat2 to have the same dtype`"
# DeepSpeed scales the loss itself, FSDP1 has a scaler of its own that takes fp16 gradients.
_PLAIN_SCALER = ("none", "ddp", "fsdp2")


@rule(
    id="fp16-full-finetune",
    severity=Severity.ERROR,
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp16: true\nsample_packing: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: auto\nsample_packing: true\n",
    beyond_trainer=(
        "Axolotl warns only where bf16 is written off, packing is on and no flash attention is used; torch's scaler "
        "refuses fp16 gradients whatever the packing (run and verified)."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A full fine-tune in fp16 trains fp16 weights, which the gradient scaler refuses.

    With `fp16: true` and no adapter the weights are loaded in fp16 and trained as they are, so their gradients are fp16
    too. Mixed precision in fp16 needs the gradient scaler, and torch's scaler takes no fp16 gradients: the first
    optimizer step stops with `Attempting to unscale FP16 gradients`. `float16: true` has no scaler, but under sdpa or
    eager attention Axolotl keeps embeddings and norms in fp32 beside fp16 linears, and the first forward pass stops
    with `expected mat1 and mat2 to have the same dtype`. Axolotl itself warns only of
    packing without flash attention, and only where bf16 is written off.

    `bf16: auto` on a card without bf16 leads to the same place; torch counts emulated bf16 as support, so Axolotl may
    run emulated bf16 there instead, which works and crawls.

    Ways out: bf16 on a card that has it, or a LoRA adapter (adapters are kept in fp32, so the scaler is content). Flash
    attention casts the fp32 embeddings back and cures the second error only.
    """
    if run.precision != "fp16" or run.weights_dtype != "fp16" or run.adapter or run.sharding not in _PLAIN_SCALER:
        return
    if not run.autocast:
        if run.fp32_embeddings:
            yield Hit(key="float16", near=("bf16", "base_model"), message=_without_scaler(run), fix=_fix(run))
    elif run.config.get("fp16"):
        yield Hit(key="fp16", message=_under_scaler(run), fix=_fix(run))
    elif run.base_model:
        yield Hit(key="bf16", near=("base_model",), message=_from_auto(run), severity=Severity.WARNING)


def _under_scaler(run: RunSpec) -> str:
    attention = run.attn_implementation
    if run.sample_packing and not uses_flash_library(attention):
        return (
            f"fp16 full fine-tune with sample_packing under {attention}, no flash attention: it stops with {_UNSCALE} "
            f"or {_MISMATCH}; use bf16 or a LoRA adapter (flash attention avoids only the second)"
        )
    return (
        "fp16: true without an adapter puts trainable fp16 weights under the gradient scaler: the first step stops "
        f"with {_UNSCALE} (or {_MISMATCH}); use bf16 or a LoRA adapter"
    )


def _without_scaler(run: RunSpec) -> str:
    return (
        f"float16: true in a full fine-tune under {run.attn_implementation} leaves fp32 embeddings and norms beside "
        f"fp16 linears: the first forward pass stops with {_MISMATCH}; use bf16, a LoRA adapter or flash attention"
    )


def _from_auto(run: RunSpec) -> str:
    card = run.target.gpu.name if run.target.gpu else "this card"
    return (
        f"bf16: auto means fp16 on {card}, and a full fine-tune in fp16 stops with {_UNSCALE} (or {_MISMATCH}); torch "
        "also counts emulated bf16, so Axolotl may crawl in that instead; use a LoRA adapter or a card with bf16"
    )


def _fix(run: RunSpec) -> Fix | None:
    gpu = run.target.gpu
    if gpu is not None and gpu.known and not gpu.bf16:
        return None
    keys = [key for key in ("fp16", "float16") if key in run.config]
    return unsafe("Train in bf16", insert_key("bf16", "auto", beside=keys[0]), *(delete_key(key) for key in keys))
