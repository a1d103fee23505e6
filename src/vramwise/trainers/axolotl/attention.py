"""What Axolotl does by attention backend: its old flags, and what follows from a name. As in utils/schemas/enums.py."""

from __future__ import annotations

from vramwise.facts.attention import supports_packing

# The old boolean flags, in the order in which Axolotl lets them win.
LEGACY_FLAGS = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}


def isolates_packed_samples(implementation: str) -> bool:
    """Keeps packed samples from attending to each other."""
    return supports_packing(implementation) or implementation in ("sdpa", "eager")


def keeps_embeddings_fp32(implementation: str) -> bool:
    """Backends under which Axolotl leaves a full fine-tune's embeddings, head and norms in fp32."""
    return implementation in ("sdpa", "eager")
