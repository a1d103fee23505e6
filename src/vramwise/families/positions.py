"""What rotary positions turn: which layers and how much of a head, as several families settle it."""

from __future__ import annotations

from vramwise.families.base import Found
from vramwise.families.config_fields import Fields


def in_sliding_layers(fields: Fields, found: Found) -> Found:
    """Full layers are not turned."""
    return {"nope_layers": tuple(layer for layer, kind in enumerate(found["layer_types"]) if kind == "full_attention")}


def beside_sliding_layers(fields: Fields, found: Found) -> Found:
    """Layers without a window are not turned where others have one."""
    return {} if found["sliding_window"] is None else {"nope_layers": without_window(found)}


def without_window(found: Found) -> tuple[int, ...]:
    """The layers that have no window."""
    return tuple(layer for layer, kind in enumerate(found["layer_types"]) if kind != "sliding_attention")


def as_listed(fields: Fields, found: Found) -> Found:
    """The file lists the layers, or every so many is not turned."""
    layers = found["num_hidden_layers"]
    rotary = fields.integers("no_rope_layers")  # 1 = has rotary embeddings, despite the name
    if rotary:
        return {"nope_layers": tuple(layer for layer, has in enumerate(rotary[:layers]) if not has)}
    every = fields.integer("no_rope_layer_interval")
    return {"nope_layers": tuple(layer for layer in range(layers) if (layer + 1) % every == 0)}


def by_rotary_dim(fields: Fields, found: Found) -> Found:
    """The file says how many dimensions of a head are turned, not which part of it."""
    turned = fields.optional_integer("rotary_dim")
    return {} if turned is None else {"rotary_fraction": min(1.0, turned / found["head_dim"])}
