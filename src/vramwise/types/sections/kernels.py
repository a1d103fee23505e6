"""Which kernels compute attention, the loss and the parts of a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting

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

    neutral_why: ClassVar[str] = "transformers' own kernels"

    attn_implementation: str = field(metadata=setting("sdpa", compared=False))
    # packed rows under sdpa use torch's variable-length kernel if the model allows it
    varlen_sdpa: bool = field(metadata=setting(False, rare=True, plain="the plain Trainer builds a mask"))
    # rotary angles come from a matrix product, the first of a run
    rotary_by_product: bool = field(metadata=setting(True, compared=False))
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
    ] = field(metadata=setting("stock", compared=False))
    # the head casts its outputs to fp32: logits in half precision go at once
    head_in_fp32: bool = field(metadata=setting(False, rare=True, plain="the plain Trainer leaves the head as it is"))
    # the plain loss copies the logits of all tokens but the last of each row
    shifts_logits: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="as transformers since 4.49, which shifts the labels")
    )
    # slices of the logits that the chunked loss takes one at a time
    loss_chunks: int = field(metadata=setting(8, rare=True))
    # Liger kernels in use besides the loss: rope, rms_norm, glu_activation…
    liger: tuple[str, ...] = field(metadata=setting((), compared=False))
    # Liger replaces classes before the model is built: no module keeps its own
    liger_before_build: bool = field(
        metadata=setting(False, compared=False, plain="Liger replaces methods of the model once it is built")
    )
    liger_chunks_in_place: ChunksInPlace = field(metadata=setting("never"))
    expert_masks: ExpertMasks = field(metadata=setting("products"))
    # mixers whose fused kernels are installed: "state space", "delta rule"
    mixer_kernels: tuple[str, ...] = field(metadata=setting((), compared=False))
    # FlashAttention is known to be installed
    flash_installed: bool = field(metadata=setting(False, ghost=False, compared=False))
    # flash attention fails in models without attention sinks
    flash_needs_sinks: bool = field(metadata=setting(False, ghost=False, compared=False))
    # the collator passes the sample boundaries of packed rows; otherwise every layer reads them from the card
    samples_told: bool = field(metadata=setting(False, compared=False))
    torch_compile: bool = field(metadata=setting(False, phrase="torch.compile"))
    # torch.compile's mode, "regional", or what else changes what is one graph
    compile_mode: str = field(metadata=setting("default", rare=True, compared=False))
    # Layers without such kernels (norms, feed-forward layers) run compiled; LoRA is added as a separate product
    compiled_layers: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the plain Trainer compiles no layers")
    )
    # How those layers attend to flattened rows: a variable-length kernel with grouped heads, one that needs repeated
    # heads, or one call per sample
    packed_attention: Literal["varlen", "repeated", "segments"] = field(
        metadata=setting("varlen", compared=False, rare=True, plain="the plain Trainer has none")
    )
    # Model types whose norms, rotation and attention run in the trainer's own kernels
    fused_layers: tuple[str, ...] = field(
        metadata=setting((), compared=False, rare=True, plain="the plain Trainer has none")
    )
    # each of those layers has its own rotary tables, created with the model
    tables_each_layer: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the plain Trainer has none")
    )
