"""Which layers use rotary positions, and for which part of a head. Shared by several families."""

from __future__ import annotations

from vramwise.models.families.base import Found
from vramwise.models.families.config_fields import Fields


def in_sliding_layers(fields: Fields, found: Found) -> Found:
    """Return layers of full attention do not use rotary positions."""
    return {"nope_layers": tuple(layer for layer, kind in enumerate(found["layer_types"]) if kind == "full_attention")}


def beside_sliding_layers(fields: Fields, found: Found) -> Found:
    """If the model has a sliding window, layers without one do not use rotary positions."""
    return {} if found["sliding_window"] is None else {"nope_layers": without_window(found)}


def without_window(found: Found) -> tuple[int, ...]:
    """Return the layers without a sliding window."""
    return tuple(layer for layer, kind in enumerate(found["layer_types"]) if kind != "sliding_attention")


def as_listed(fields: Fields, found: Found) -> Found:
    """Return the file lists the layers with rotary positions, or every `no_rope_layer_interval`-th layer has none."""
    layers = found["num_hidden_layers"]
    rotary = fields.integers("no_rope_layers")  # 1 = has rotary embeddings, despite the name
    if rotary:
        return {"nope_layers": tuple(layer for layer, has in enumerate(rotary[:layers]) if not has)}
    every = fields.integer("no_rope_layer_interval")
    return {"nope_layers": tuple(layer for layer in range(layers) if (layer + 1) % every == 0)}


def by_rotary_dim(fields: Fields, found: Found) -> Found:
    """Derive the rotary part of a head from `rotary_dim`, its number of dimensions."""
    turned = fields.optional_integer("rotary_dim")
    return {} if turned is None else {"rotary_fraction": min(1.0, turned / found["head_dim"])}
