"""Granite 4: Mamba 2 layers with some of attention between them; experts beside a shared MLP, or that MLP alone."""

from __future__ import annotations

from typing import Any

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parts, experts, linear, norms, projections, router
from vramwise.families.state_spaces import mamba2, mamba_sizes
from vramwise.types import ModelSpec

_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}


def settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers, the Mamba sizes and the shared MLP's width.

    Older files name the kinds mamba and attention. Rotary positions are used only if the file says rope.
    """
    written = fields.texts("layer_types") or fields.texts("layers_block_type")
    kinds = tuple(_KINDS.get(kind, kind) for kind in written or ("mamba",) * found["num_hidden_layers"])
    width = fields.integer("mamba_expand") * found["hidden_size"]
    settled: dict[str, Any] = {"layer_types": kinds, "sizes": mamba_sizes(fields, width=width, norm=True)}
    if fields.text("position_embedding_type") != "rope":
        settled["rotary_fraction"] = 0.0
    settled["shared_expert_intermediate_size"] = fields.integer("shared_intermediate_size")
    return settled


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from norms(model, block)
    if model.num_experts:
        yield from router(model, "block_sparse_moe.router")
        yield from experts(model, "block_sparse_moe.experts")
    shared = model.shared_expert_intermediate_size
    yield from linear("shared_mlp.input_linear", model.hidden_size, 2 * shared, False)
    yield from linear("shared_mlp.output_linear", shared, model.hidden_size, False)
    if model.layer_types[layer] == "full_attention":
        yield from projections(model, block)
    else:
        conv_bias = model.size("state_conv_bias") > 0
        yield from mamba2(model, "mamba", bias=model.size("state_bias") > 0, conv_bias=conv_bias)
