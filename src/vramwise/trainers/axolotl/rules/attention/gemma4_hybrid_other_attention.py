"""gemma4-hybrid-other-attention"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="gemma4-hybrid-other-attention",
    severity=Severity.ERROR,
    topic="attention",
    bad="base_model: google/gemma-4-31B\ngemma4_hybrid_attn_impl: true\nattn_implementation: sdpa\n",
    good="base_model: google/gemma-4-31B\ngemma4_hybrid_attn_impl: true\nattn_implementation: flash_attention_2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`gemma4_hybrid_attn_impl` with another backend than FlashAttention 2.

    The hybrid runs Gemma 4's sliding-window layers under FlashAttention 2 and swaps the global layers to sdpa. Any
    other `attn_implementation` is refused; leaving it out means FlashAttention 2.
    """
    chosen = run.config.get("attn_implementation")
    if run.config.get("gemma4_hybrid_attn_impl") and chosen and chosen != "flash_attention_2":
        yield Hit(
            key="attn_implementation",
            message=f"gemma4_hybrid_attn_impl runs on flash_attention_2, not on {chosen}: Axolotl stops",
            fix=unsafe("Use flash_attention_2", set_key("attn_implementation", "flash_attention_2")),
        )
