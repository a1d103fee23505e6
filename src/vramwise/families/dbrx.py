"""DBRX: LayerNorms without biases, one projection for q, k and v, experts whose weights are 2-D."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, key_size, linear, norm, query_size
from vramwise.types import ModelSpec


def _inner(fields: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    return Fields(fields.mapping(name), defaults, f"{fields.source} ({name})")


def kv_heads(fields: Fields, heads: int) -> int:
    """Return the number of key-value heads."""
    return _inner(fields, "attn_config", {"kv_n_heads": 1}).integer("kv_n_heads")


def settles(fields: Fields, found: Found) -> Found:
    """Read the sizes of the mixture of experts from `ffn_config`."""
    mixture = _inner(fields, "ffn_config", {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1})
    return {
        "num_experts": mixture.integer("moe_num_experts"),
        "num_experts_per_tok": mixture.integer("moe_top_k"),
        "moe_intermediate_size": mixture.integer("ffn_hidden_size"),
    }


def block_parts(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """The parameters of one block."""
    hidden, attention = model.hidden_size, "norm_attn_norm.attn"
    rows = model.num_experts * model.moe_intermediate_size
    yield from norm("norm_attn_norm.norm_1", model, block)
    yield from linear(f"{attention}.Wqkv", hidden, query_size(model) + 2 * key_size(model), False)
    yield from linear(f"{attention}.out_proj", hidden, hidden, False)
    yield from norm("norm_attn_norm.norm_2", model, block)
    yield Parameter("ffn.router.layer.weight", (model.num_experts, hidden), "router")
    for name in ("w1", "v1", "w2"):
        yield Parameter(f"ffn.experts.mlp.{name}", (rows, hidden), "experts")
