"""Which kernels compute attention, the loss and the parts of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Where transformers zeroes rows that are routed to no expert of this rank: nowhere, before the first product and after
# the last, or after each product too.
ExpertMasks = Literal["none", "ends", "products"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels of LoRA are the adapter's."""

    attn_implementation: str
    varlen_sdpa: bool  # packed rows under sdpa use torch's variable-length kernel, where the model allows it
    rotary_by_product: bool  # rotary angles come from a matrix product, the first of a run
    # "tiled": the head in tiles, from hidden states; neither training nor an evaluation ever holds logits
    loss_kernel: Literal[
        "stock", "liger_fused_linear", "liger", "cut", "chunked", "tiled", "dft", "eaft", "dft_whole", "eaft_whole"
    ]
    loss_chunks: int  # slices of the logits that the chunked loss takes one at a time
    liger: tuple[str, ...]  # Liger kernels in use besides the loss: rope, rms_norm, glu_activation…
    liger_before_build: bool  # Liger replaces classes before the model is built: no module keeps its own
    expert_masks: ExpertMasks
    torch_compile: bool


NEUTRAL = Kernels(
    attn_implementation="sdpa",
    varlen_sdpa=False,
    rotary_by_product=True,
    loss_kernel="stock",
    loss_chunks=8,
    liger=(),
    liger_before_build=False,
    expert_masks="products",
    torch_compile=False,
)
NEUTRAL_WHY = "transformers' own kernels"
