"""Llama 4 and Llama 3.2 Vision.

Llama 4: layers of full and of chunked attention; in sparse layers every token runs through every expert. Llama 3.2
Vision: Llama 3.1 with layers of cross attention between, which text alone does not go through.
"""

from __future__ import annotations

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import Parameter, Parts, key_size, linear, mlp, norms, projections, query_size
from vramwise.types import ModelSpec


def llama4_settles(fields: Fields, found: Found) -> Found:
    """Set the widths of dense layers and experts, the dense layers, and the layers without rotary positions."""
    layers = range(found["num_hidden_layers"])
    rotary = fields.integers("no_rope_layers")  # 1 = has rotary embeddings, despite the name
    every, step = fields.integer("no_rope_layer_interval"), fields.integer("interleave_moe_layer_step")
    turned = rotary[: len(layers)] if rotary else tuple(int((layer + 1) % every != 0) for layer in layers)
    written = fields.get("moe_layers")
    sparse = fields.integers("moe_layers") if written is not None else tuple(range(step - 1, len(layers), step))
    kinds = fields.texts("layer_types") or tuple("chunked_attention" if has else "full_attention" for has in turned)
    return {
        "moe_intermediate_size": found["intermediate_size"],
        "shared_expert_intermediate_size": found["intermediate_size"],
        "intermediate_size": fields.integer("intermediate_size_mlp"),
        "dense_layers": tuple(layer for layer in layers if layer not in sparse),
        "nope_layers": tuple(layer for layer, has in enumerate(turned) if not has),
        "layer_types": kinds,
        "qk_norm": "none",  # a norm without weights, which is not modelled
    }


def llama4_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from projections(model, block)
    if layer in model.dense_layers:
        yield from mlp(model, "feed_forward")
    else:
        count, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
        yield Parameter("feed_forward.experts.gate_up_proj", (count, hidden, 2 * size), "experts")
        yield Parameter("feed_forward.experts.down_proj", (count, size, hidden), "experts")
        yield Parameter("feed_forward.router.weight", (count, hidden), "router")
        yield from mlp(model, "feed_forward.shared_expert", model.shared_expert_intermediate_size)
    yield from norms(model, block)


_CROSS = (3, 8, 13, 18, 23, 28, 33, 38)


def mllama_settles(fields: Fields, found: Found) -> Found:
    """Return what follows from several fields."""
    cross = fields.integers("cross_attention_layers") or _CROSS
    layers = range(found["num_hidden_layers"])
    return {"layer_types": tuple("cross_attention" if layer in cross else "full_attention" for layer in layers)}


def mllama_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
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
