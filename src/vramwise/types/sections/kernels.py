"""Which kernels compute attention, the loss and the parts of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# When transformers zeroes rows that are routed to no expert of this rank: never, before the first product and after the
# last, or also after each product.
ExpertMasks = Literal["none", "ends", "products"]
# When Liger's fused loss works on one chunk of logits in place: never, if no operand needs a cast, or always.
ChunksInPlace = Literal["never", "uncast", "always"]
# Losses that process only tokens with a label.
BY_LABEL = frozenset(("tiled", "slices", "fp32_slices"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The kernels of LoRA are in the adapter section."""

    attn_implementation: str
    varlen_sdpa: bool  # packed rows under sdpa use torch's variable-length kernel if the model allows it
    rotary_by_product: bool  # rotary angles come from a matrix product, the first of a run
    # "tiled", "slices", "rows", "room": the head runs on tiles, on 256 tokens or on some rows at a time ("room": as
    # many as fit), so that neither training nor evaluation holds all logits. "fp32_slices": slices whose operands are
    # cast to fp32. "in_place": gradients overwrite the logits
    loss_kernel: Literal[
        "stock",
        "liger_fused_linear",
        "liger",
        "cut",
        "chunked",
        "tiled",
        "slices",
        "fp32_slices",
        "rows",
        "room",
        "in_place",
        "dft",
        "eaft",
        "dft_whole",
        "eaft_whole",
    ]
    head_in_fp32: bool  # the head casts its outputs to fp32: logits in half precision go at once
    loss_chunks: int  # slices of the logits that the chunked loss takes one at a time
    liger: tuple[str, ...]  # Liger kernels in use besides the loss: rope, rms_norm, glu_activation…
    liger_before_build: bool  # Liger replaces classes before the model is built: no module keeps its own
    liger_chunks_in_place: ChunksInPlace
    expert_masks: ExpertMasks
    mixer_kernels: tuple[str, ...]  # mixers whose fused kernels are installed: "state space", "delta rule"
    flash_installed: bool  # FlashAttention is known to be installed
    flash_needs_sinks: bool  # flash attention fails in models without attention sinks
    # the collator passes the sample boundaries of packed rows; otherwise every layer reads them from the card
    samples_told: bool
    torch_compile: bool
    # Layers without such kernels (norms, feed-forward layers) run compiled; LoRA is added as a separate product
    compiled_layers: bool
    # How those layers attend to flattened rows: a variable-length kernel with grouped heads, one that needs repeated
    # heads, or one call per sample
    packed_attention: Literal["varlen", "repeated", "segments"]
    # Model types whose norms, rotation and attention run in the trainer's own kernels
    fused_layers: tuple[str, ...]
    tables_each_layer: bool  # each of those layers has its own rotary tables, created with the model


NEUTRAL = Kernels(
    attn_implementation="sdpa",
    varlen_sdpa=False,
    rotary_by_product=True,
    loss_kernel="stock",
    head_in_fp32=False,
    loss_chunks=8,
    liger=(),
    liger_before_build=False,
    liger_chunks_in_place="never",
    expert_masks="products",
    mixer_kernels=(),
    flash_installed=False,
    flash_needs_sinks=False,
    samples_told=False,
    torch_compile=False,
    compiled_layers=False,
    packed_attention="varlen",
    fused_layers=(),
    tables_each_layer=False,
)
NEUTRAL_WHY = "transformers' own kernels"
