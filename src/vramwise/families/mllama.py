"""Llama 3.2 Vision: Llama 3.1 with layers of cross attention between, which text alone does not go through."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, key_size, linear, mlp, norms, projections, query_size
from vramwise.types import ModelSpec

_CROSS = (3, 8, 13, 18, 23, 28, 33, 38)


def settles(fields: Fields, found: Found) -> Found:
    """What follows from several fields."""
    cross = fields.integers("cross_attention_layers") or _CROSS
    layers = range(found["num_hidden_layers"])
    return {"layer_types": tuple("cross_attention" if layer in cross else "full_attention" for layer in layers)}


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    if model.layer_types[layer] != "cross_attention":
        yield from projections(model, block)
        yield from mlp(model)
        yield from norms(model, block)
        return
    hidden = model.hidden_size
    yield Parameter("cross_attn_attn_gate", (1,), "other")
    yield Parameter("cross_attn_mlp_gate", (1,), "other")
    yield from linear("cross_attn.q_proj", hidden, query_size(model), False)
    yield from linear("cross_attn.k_proj", hidden, key_size(model), False)
    yield from linear("cross_attn.v_proj", hidden, key_size(model), False)
    yield from linear("cross_attn.o_proj", query_size(model), hidden, False)
    yield Parameter("cross_attn.q_norm.weight", (model.head_dim,), "norm")
    yield Parameter("cross_attn.k_norm.weight", (model.head_dim,), "norm")
    yield from norms(model, block, "input_layernorm")
    yield from mlp(model)
    yield from norms(model, block, "post_attention_layernorm")
