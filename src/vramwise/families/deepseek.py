"""DeepSeek V2 and V3, and models with the same block: latent attention, a mixture of experts beside shared experts.

Kimi K2, Moonlight, GLM 4.7 Flash and Mistral Small 4 use V3's block. GLM 5 adds an indexer that chooses tokens.
"""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.mixtures import shared_experts
from vramwise.families.parts import Parameter, Parts, linear, mlp, norm, norms
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
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
        **dense_layers(fields, found),
    }


def dense_layers(fields: Fields, found: Found) -> Found:
    """Return the dense layers if the file lists them, as newer files do."""
    written = fields.texts("mlp_layer_types")
    if written is None or not found.get("num_experts"):
        return {}
    return {"dense_layers": tuple(layer for layer, kind in enumerate(written) if kind == "dense")}


def latent(model: ModelSpec, block: Block) -> Parts:
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


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from latent(model, block)
    if model.layer_types[layer] == "indexed_attention":
        yield from _indexer(model)
    yield from shared_experts(model) if model.num_experts and layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)
