"""Families with a mixture of experts.

First, llama blocks whose MLP is a mixture of experts in sparse layers, for each order of its parts. Then families with
values or blocks of their own:

- Trinity (AFMoE): gated attention with norms before and after, windows in three of four layers, many small experts.
- Ling and Ring (Bailing): shared experts that form one MLP.
- DBRX: LayerNorms without biases, one projection for q, k and v, experts whose weights are 2-D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.layout import BlockParts
from vramwise.models.families.parts import (
    Parameter,
    Parts,
    attention,
    experts,
    key_size,
    linear,
    mlp,
    norm,
    norms,
    query_size,
    router,
)
from vramwise.models.families.positions import without_window
from vramwise.types import ModelSpec


def shared_experts(model: ModelSpec) -> Parts:
    """Return experts, their router, and the shared experts."""
    yield from experts(model)
    yield from router(model)
    yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)


def gated_expert(model: ModelSpec) -> Parts:
    """Return the router, its experts, and a shared expert with its own gate."""
    yield from router(model)
    yield from experts(model)
    yield from mlp(model, "mlp.shared_expert", model.shared_expert_intermediate_size)
    yield from linear("mlp.shared_expert_gate", model.hidden_size, 1, False)


def _sparse_llama(*mixture: Callable[[ModelSpec], Parts]) -> BlockParts:
    def block_parts(model: ModelSpec, block: Block, sparse: bool) -> Parts:
        yield from attention(model, block)
        for part in mixture if sparse else (mlp,):
            yield from part(model)
        yield from norms(model, block)

    return block_parts


router_first = _sparse_llama(router, experts)
router_last = _sparse_llama(experts, router)
beside_shared_experts = _sparse_llama(shared_experts)
beside_gated_expert = _sparse_llama(gated_expert)


def afmoe_settles(fields: Fields, found: Found) -> Found:
    """Set the shared experts' width and the dense first layers. Only layers with a window use rotary positions."""
    shared = fields.count("num_shared_experts") * fields.integer("moe_intermediate_size")
    return {
        "shared_expert_intermediate_size": shared,
        "dense_layers": tuple(range(fields.count("num_dense_layers"))),
        "nope_layers": without_window(found),
    }


def afmoe_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from attention(model, block)
    yield from linear("self_attn.gate_proj", model.hidden_size, query_size(model), False)
    yield from norms(model, block)
    if layer in model.dense_layers:
        yield from mlp(model)
        return
    yield Parameter("mlp.expert_bias", (model.num_experts,), "other")
    yield from router(model, "mlp.router.gate")
    if model.shared_expert_intermediate_size:
        yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)
    yield from experts(model)


def bailing_settles(fields: Fields, found: Found) -> Found:
    """Set the width of the shared experts, which form one MLP. Each is as wide as an expert unless the file sets it."""
    if not found.get("num_experts"):
        return {}
    width = fields.optional_integer("moe_shared_expert_intermediate_size") or found["moe_intermediate_size"]
    return {"shared_expert_intermediate_size": fields.count("num_shared_experts") * width}


def _dbrx_part(fields: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    return Fields(fields.mapping(name), defaults, f"{fields.source} ({name})")


def dbrx_kv_heads(fields: Fields, heads: int) -> int:
    """Return the number of key-value heads."""
    return _dbrx_part(fields, "attn_config", {"kv_n_heads": 1}).integer("kv_n_heads")


def dbrx_settles(fields: Fields, found: Found) -> Found:
    """Read the sizes of the mixture of experts from `ffn_config`."""
    mixture = _dbrx_part(fields, "ffn_config", {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1})
    return {
        "num_experts": mixture.integer("moe_num_experts"),
        "num_experts_per_tok": mixture.integer("moe_top_k"),
        "moe_intermediate_size": mixture.integer("ffn_hidden_size"),
    }


def dbrx_block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return the parameters of one block."""
    hidden, attention = model.hidden_size, "norm_attn_norm.attn"
    rows = model.num_experts * model.moe_intermediate_size
    yield from norm("norm_attn_norm.norm_1", model, block)
    yield from linear(f"{attention}.Wqkv", hidden, query_size(model) + 2 * key_size(model), False)
    yield from linear(f"{attention}.out_proj", hidden, hidden, False)
    yield from norm("norm_attn_norm.norm_2", model, block)
    yield Parameter("ffn.router.layer.weight", (model.num_experts, hidden), "router")
    for name in ("w1", "v1", "w2"):
        yield Parameter(f"ffn.experts.mlp.{name}", (rows, hidden), "experts")
