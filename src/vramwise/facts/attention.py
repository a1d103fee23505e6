"""Attention backends by transformers' names: which are FlashAttention, which take packed rows."""

from __future__ import annotations

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
