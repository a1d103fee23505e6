"""Attention backends by what they mean for memory. Sets as in Axolotl 0.19's schema (utils/schemas/enums.py)."""

from __future__ import annotations

# The old boolean flags, in the order in which Axolotl lets them win.
LEGACY_FLAGS = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
_HUB_FLASH = frozenset({"kernels-community/flash-attn2", "kernels-community/flash-attn3"})
_FLASH_LIBRARY = frozenset({"flash_attention_2", "flash_attention_3"}) | _HUB_FLASH
_VARLEN = _FLASH_LIBRARY | {
    "flash_attention_4",
    "flash_attention_torch",
    "flex_attention",
    "xformers",
    "sage",
    "kernels-community/sage-attention",
}


def base_name(implementation: str) -> str:
    """A hub kernel without its revision or kernel name: org/name@v2:fn → org/name."""
    return implementation.split(":", 1)[0].split("@", 1)[0].strip()


def supports_packing(implementation: str) -> bool:
    """Takes one long row of packed samples (varlen)."""
    return base_name(implementation) in _VARLEN


def uses_flash_library(implementation: str) -> bool:
    """FlashAttention 2 or 3, from the package or the kernels hub."""
    return base_name(implementation) in _FLASH_LIBRARY


def isolates_packed_samples(implementation: str) -> bool:
    """Keeps packed samples from attending to each other."""
    return supports_packing(implementation) or implementation in ("sdpa", "eager")


def keeps_embeddings_fp32(implementation: str) -> bool:
    """Backends under which Axolotl leaves a full fine-tune's embeddings, head and norms in fp32."""
    return implementation in ("sdpa", "eager")
