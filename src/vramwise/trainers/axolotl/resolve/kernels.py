"""Axolotl's behaviour by attention backend: its old flags, and what follows from a name (utils/schemas/enums.py)."""

from __future__ import annotations

from vramwise.facts.attention import supports_packing
from vramwise.trainers.axolotl.schema import Schema
from vramwise.trainers.fields import Fields

# The old boolean flags, in order of precedence.
LEGACY_FLAGS = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}


def isolates_packed_samples(implementation: str) -> bool:
    """Return whether the backend keeps packed samples from attending to each other."""
    return supports_packing(implementation) or implementation in ("sdpa", "eager")


def keeps_embeddings_fp32(implementation: str, schema: Schema) -> bool:
    """Return whether full fine-tuning keeps embeddings, head and norms in fp32 with this backend.

    Up to 0.16 (loaders/model.py) the flags of the other backends cast them back: sage_attention's since 0.15.
    """
    if schema.since("0.17.0"):
        return implementation in ("sdpa", "eager")
    back = ("flash_attention_2", "flex_attention", *(("sage",) if schema.since("0.15.0") else ()))
    return implementation not in back


def resolve_varlen(fields: Fields, schema: Schema) -> None:
    """Fill varlen_sdpa: packed rows under sdpa, unless `sdpa_varlen` is false or the weights are in fp32."""
    name, key, values = "varlen_sdpa", "sdpa_varlen", fields.values
    reasons = (
        (schema.key_type(key) is None, "Axolotl 0.18 brought it"),
        (fields.config.get(key) is False, f"{key} is false"),
        (values["attn_implementation"] != "sdpa" or not values["sample_packing"], "only for packing under sdpa"),
        (values["weights_dtype"] == "fp32", "the kernel takes half precision only"),
    )
    why = next((why for applies, why in reasons if applies), None)
    fields.derive(name, why is None, why or "packing under sdpa: Axolotl switches it on", key=key)
