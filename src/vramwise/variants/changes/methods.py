"""Changes of the training method that the user must allow: adapters, quantised bases, shorter rows, fp8, packing."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from vramwise.models.families import find_type
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind
from vramwise.variants.changes.kernels import packing_attention
from vramwise.variants.changes.weights import PLAIN_ADAM, has_experts

_RANK, _ALPHA = 16, 32
_SMALLEST_RANK = 4
_SHORTEST_ROW = 256
_FP8_TOKENS = 32  # token counts must be a multiple of this in the strictest format
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")

LORA = kind("train-adapter")
QLORA = kind("quantize-base")
SHORTER = kind("shorter-rows")
LOWER_RANK = kind("lower-rank")
NARROWER = kind("narrower-targets")
FP8 = kind("train-in-fp8")
PACK = kind("pack-samples")


def quantize_base(run: RunSpec) -> Change | None:
    """Use a 4-bit base for LoRA."""
    if run.adapter.kind != "lora" or run.loading.quantization:
        return None
    return QLORA.to(adapter="qlora", quantization="4bit")


def adapters(run: RunSpec) -> Iterator[Change]:
    """Yield LoRA instead of full fine-tuning."""
    if _whole_model(run):
        yield LORA.to(f"{LORA.what}: rank {_RANK}", adapter="lora", **_new_adapter(run))


def quantised_bases(run: RunSpec) -> Iterator[Change]:
    """Yield QLoRA instead of LoRA or full fine-tuning."""
    gpu = run.target.gpu
    if run.sharding.kind not in ("none", "ddp") or (gpu is not None and gpu.vendor == "amd"):
        return
    if _whole_model(run):
        title = f"{QLORA.what} of rank {_RANK}"
        yield QLORA.to(title, adapter="qlora", quantization="4bit", **_new_adapter(run))
    elif run.adapter.kind == "lora" and run.loading.quantization in (None, "8bit"):
        yield QLORA.to(adapter="qlora", quantization="4bit")


def _whole_model(run: RunSpec) -> bool:
    plain = run.optimizer.name in PLAIN_ADAM or run.optimizer.name.startswith(
        ("paged_adamw", "adamw_bnb", "adamw_8bit")
    )
    return (
        run.adapter.kind is None
        and plain
        and not run.adapter.unfrozen
        and run.precision.compute != "fp8"
        and run.loading.quantization is None
    )


def _new_adapter(run: RunSpec) -> dict[str, Any]:
    """Return the most common rank and alpha, on all linear layers; with experts, only on those of attention."""
    targets: dict[str, Any] = {"lora_target_linear": True}
    if has_experts(run):
        targets = {"lora_target_modules": _ATTENTION}
    return {"lora_r": _RANK, "lora_alpha": _ALPHA, **targets}


def shorter_rows(run: RunSpec) -> Iterator[Change]:
    """Yield halved row lengths, down to 256 tokens."""
    length = run.shapes.sequence_len // 2
    while length >= _SHORTEST_ROW:
        title = f"Rows of {length} tokens instead of {run.shapes.sequence_len} (drops or cuts long samples)"
        longer_eval = run.evaluation.eval_sequence_len is not None and run.evaluation.eval_sequence_len > length
        yield SHORTER.to(title, sequence_len=length, **({"eval_sequence_len": length} if longer_eval else {}))
        length //= 2


def narrower_targets(run: RunSpec) -> Iterator[Change]:
    """Yield adapters on the projections of attention alone; what is named can be quantised beside fused experts."""
    names = _attention_names(run)
    wider = run.adapter.lora_target_linear or not set(run.adapter.lora_target_modules) <= set(names)
    if run.adapter.kind in ("lora", "qlora") and len(names) > 1 and wider:
        fields = {"lora_target_linear": False} if run.adapter.lora_target_linear else {}
        yield NARROWER.to(f"{NARROWER.what}: {', '.join(names)}", lora_target_modules=names, **fields)


def _attention_names(run: RunSpec) -> tuple[str, ...]:
    found = find_type(run.model_type) if run.model_type else None
    if found is None:
        return ()
    family, model_type = found
    return tuple([path.rpartition(".")[2] for path in (model_type.block or family.block).attention])


def lower_ranks(run: RunSpec) -> Iterator[Change]:
    """Yield halved ranks, down to 4, with alpha in proportion."""
    if (
        run.adapter.kind not in ("lora", "qlora")
        or run.adapter.lora_r is None
        or run.origins["lora_r"].kind == "assumed"
    ):
        return
    rank, alpha = run.adapter.lora_r // 2, run.adapter.lora_alpha
    while rank >= _SMALLEST_RANK:
        fields: dict[str, Any] = {"lora_r": rank}
        if alpha is not None and isfinite(alpha) and run.origins["lora_alpha"].kind != "assumed":
            fields["lora_alpha"] = _scaled(alpha, rank, run.adapter.lora_r)
        yield LOWER_RANK.to(f"Rank {run.adapter.lora_r} → {rank}", **fields)
        rank //= 2


def _scaled(alpha: float, rank: int, before: int) -> float:
    exact = alpha * rank / before
    return int(exact) if exact == int(exact) else exact


def fp8_products(run: RunSpec) -> Iterator[Change]:
    """Yield fp8 for the linear layers of a fully trained model, on cards whose fp8 the trainers support."""
    gpu = run.target.gpu
    takes = gpu is not None and gpu.fp8 and gpu.capability is not None and gpu.capability >= (9, 0)
    supervised = run.objective.rl is None and run.objective.kind == "tokens"
    if not takes or not supervised or run.adapter.kind is not None or run.precision.compute != "bf16":
        return
    fields: dict[str, Any] = {"precision": "fp8"}
    if not run.kernels.torch_compile:
        fields["torch_compile"] = True  # fp8 is not faster without it
    if run.shapes.pad_multiple % _FP8_TOKENS:
        fields["pad_to_sequence_len"] = True
    yield FP8.to(**fields)


def packed_rows(run: RunSpec) -> Iterator[Change]:
    """Yield packing, with a backend that separates samples."""
    streamed = run.shapes.constant_shapes and not run.shapes.pad_to_sequence_len  # rows are already full
    if (
        run.shapes.sample_packing
        or run.objective.kind != "tokens"
        or run.objective.rl
        or not run.shapes.can_pad
        or streamed
    ):
        return
    backend = packing_attention(run)
    if backend is not None:
        yield PACK.to(sample_packing=True, attn_implementation=backend)
