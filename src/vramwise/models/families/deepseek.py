"""DeepSeek V2 and V3, and models with the same parts: latent attention, a mixture of experts beside shared experts.

Kimi K2, Moonlight, GLM 4.7 Flash and Mistral Small 4 use V3's block. GLM 5 adds an indexer that chooses tokens. Kimi
Linear has delta attention in three of four layers and latent attention without positions in the fourth.
"""

from __future__ import annotations

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.mixtures import shared_experts
from vramwise.models.families.parts import Parameter, Parts, linear, mlp, norm, norms
from vramwise.types import ModelSpec


def deepseek_settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers, the dense layers and the head size.

    Only a part of each head uses rotary positions. As in transformers, that part counts as the head.
    """
    sizes = dict(found["sizes"])
    shared = fields.texts("indexer_types")
    if shared is not None and len(shared) == found["num_hidden_layers"]:
        # layers that reuse the choice of an earlier layer have no indexer
        kinds = tuple("indexed_attention" if kind == "full" else "full_attention" for kind in shared)
        found = {**found, "layer_types": kinds}
    elif "index_n_heads" in sizes:
        found = {**found, "layer_types": ("indexed_attention",) * found["num_hidden_layers"]}
    return {
        "layer_types": found["layer_types"],
        "head_dim": sizes["qk_rope_head_dim"],
        "rotary_fraction": 1.0,
        **_dense_layers(fields, found),
    }


def _dense_layers(fields: Fields, found: Found) -> Found:
    """Return the dense layers if the file lists them, as newer files do."""
    written = fields.texts("mlp_layer_types")
    if written is None or not found.get("num_experts"):
        return {}
    return {"dense_layers": tuple(layer for layer, kind in enumerate(written) if kind == "dense")}


def _latent(model: ModelSpec, block: Block) -> Parts:
    """Yield the parameters of latent attention. Queries have their own low rank if the model sets one."""
    hidden, heads, name = model.hidden_size, model.num_attention_heads, "self_attn"
    rank, turned, plain = (model.size(key) for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    queries = model.size("q_lora_rank")
    if queries:
        yield from linear(f"{name}.q_a_proj", hidden, queries, model.qkv_bias)
        yield from norm(f"{name}.q_a_layernorm", model, block, queries)
        yield from linear(f"{name}.q_b_proj", queries, heads * (plain + turned), False)
    else:
        yield from linear(f"{name}.q_proj", hidden, heads * (plain + turned), False)
    yield from linear(f"{name}.kv_a_proj_with_mqa", hidden, rank + turned, model.qkv_bias)
    yield from norm(f"{name}.kv_a_layernorm", model, block, rank)
    yield from linear(f"{name}.kv_b_proj", rank, heads * (plain + model.size("v_head_dim")), False)
    yield from linear(f"{name}.o_proj", heads * model.size("v_head_dim"), hidden, model.attention_out_bias)


def _indexer(model: ModelSpec) -> Parts:
    """Yield the parameters of GLM 5's indexer, which chooses the tokens to attend to. Its memory in a step is not
    modelled.
    """
    width, heads, name = model.size("index_head_dim"), model.size("index_n_heads"), "self_attn.indexer"
    yield from linear(f"{name}.wq_b", model.size("q_lora_rank"), heads * width, False)
    yield from linear(f"{name}.wk", model.hidden_size, width, False)
    yield Parameter(f"{name}.k_norm.weight", (width,), "norm")
    yield Parameter(f"{name}.k_norm.bias", (width,), "norm")
    yield from linear(f"{name}.weights_proj", model.hidden_size, heads, False)


def deepseek_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from _latent(model, block)
    if model.layer_types[layer] == "indexed_attention":
        yield from _indexer(model)
    yield from shared_experts(model) if model.num_experts and layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)


def kimi_settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers and the sizes of delta attention.

    Published files have these in a separate mapping, with layers counted from 1.
    """
    inner = Fields(fields.mapping("linear_attn_config"), {}, f"{fields.source} (linear_attn_config)")
    layers = range(found["num_hidden_layers"])
    kinds = fields.texts("layer_types")
    if kinds is None:
        full = {layer - 1 for layer in inner.integers("full_attn_layers")} or {i for i in layers if i and i % 4 == 0}
        kinds = tuple("full_attention" if layer in full else "linear_attention" for layer in layers)
    heads = inner.optional_integer("num_heads") or fields.integer("linear_num_heads")
    width = inner.optional_integer("head_dim") or fields.integer("linear_head_dim")
    taps = inner.optional_integer("short_conv_kernel_size") or fields.integer("linear_conv_kernel_dim")
    delta = {
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": width,
        "linear_value_head_dim": width,
        "linear_conv_kernel_dim": taps,
    }
    shared = fields.count("num_shared_experts", "n_shared_experts") * found["moe_intermediate_size"]
    return {
        "layer_types": kinds,
        "sizes": (*found["sizes"], *delta.items()),
        "head_dim": dict(found["sizes"])["qk_rope_head_dim"],
        "rotary_fraction": 0.0,
        "num_experts_per_tok": fields.integer("num_experts_per_token", "num_experts_per_tok"),
        "shared_expert_intermediate_size": shared,
        **_dense_layers(fields, found),
    }


def _delta(model: ModelSpec) -> Parts:
    heads, width, hidden = model.size("linear_num_key_heads"), model.size("linear_key_head_dim"), model.hidden_size
    size, name = heads * width, "self_attn"
    for letter in "qkv":
        yield from linear(f"{name}.{letter}_proj", hidden, size, False)
    yield Parameter(f"{name}.conv1d.weight", (3 * size, 1, model.size("linear_conv_kernel_dim")), "other")
    yield Parameter(f"{name}.forget_gate.dt_bias", (size,), "other")
    yield Parameter(f"{name}.forget_gate.A_log", (1, 1, heads, 1), "other")
    yield from linear(f"{name}.forget_gate.f_a_proj", hidden, width, False)
    yield from linear(f"{name}.forget_gate.f_b_proj", width, size, False)
    yield from linear(f"{name}.b_proj", hidden, heads, False)
    yield from linear(f"{name}.g_a_proj", hidden, width, False)
    yield from linear(f"{name}.g_b_proj", width, size, False)
    yield Parameter(f"{name}.o_norm.weight", (width,), "norm")
    yield from linear(f"{name}.o_proj", size, hidden, False)


def kimi_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from _latent(model, block) if model.layer_types[layer] == "full_attention" else _delta(model)
    yield from shared_experts(model) if layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)
