"""Attention backends by transformers' names: which are FlashAttention, which support packing, which a model refuses.

What models refuse: `_supports_sdpa` and `_supports_flash_attn` in `modeling_*.py` of transformers 5.16 and 5.20.
"""

from __future__ import annotations

from vramwise.types import RunSpec

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
    """Return a hub kernel's name without revision and function: org/name@v2:fn → org/name."""
    return implementation.split(":", 1)[0].split("@", 1)[0].strip()


def supports_packing(implementation: str) -> bool:
    """Return whether it supports one long row of packed samples (varlen)."""
    return base_name(implementation) in _VARLEN


# Releases of transformers whose flash attention fails on every model without attention sinks.
_FLASH_STOPS = frozenset({(5, 6, 0)})


def flash_needs_sinks(transformers: tuple[int, ...]) -> bool:
    """Return whether flash attention in this release fails on models without attention sinks."""
    return transformers in _FLASH_STOPS


def flash_stops(run: RunSpec) -> bool:
    """Whether the run would fail in its first layer under flash attention: only gpt-oss has the sinks it needs."""
    return run.kernels.flash_needs_sinks and run.model_type != "gpt_oss"


def uses_flash_library(implementation: str) -> bool:
    """Return whether it is FlashAttention 2 or 3, from the package or the kernels hub."""
    return base_name(implementation) in _FLASH_LIBRARY


# These use attention sinks and the like, which torch's kernel does not support.
_NO_SDPA = frozenset(
    {"gpt_oss", "deepseek_v4", "mimo_v2_flash", "granite_swa", "granitemoe_swa", "hy_v4", "mpt", "gptj"}
)
# sdpa silently drops the soft cap of the scores: it differs from eager and FlashAttention.
_CAPPED = frozenset({"gemma2", "vaultgemma"})
_NO_FLASH = frozenset(
    {
        *("gpt_oss", "deepseek_v32", "deepseek_v4", "gemma4", "gemma4_text", "glm_moe_dsa", "hy_v4", "llama4"),
        *("llama4_text", "qwen4_exp", "minimax_m3_vl", "blt", "doge", "mpt"),
    }
)


def same_attention(model_type: str | None) -> frozenset[str]:
    """Return those of eager, sdpa and flash_attention_2 that a model supports with the same result."""
    refused = {"sdpa"} if model_type in _NO_SDPA | _CAPPED else set()
    return frozenset({"eager", "sdpa", "flash_attention_2"} - refused - _flashless(model_type))


def _flashless(model_type: str | None) -> set[str]:
    return {"flash_attention_2"} if model_type in _NO_FLASH else set()
