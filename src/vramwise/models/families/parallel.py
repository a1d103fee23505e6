"""Falcon and StableLM: attention and MLP may be parallel, after one norm.

Falcon: fused q, k and v with few key heads, LayerNorms, a two-matrix MLP, in one of three orders. StableLM: llama with
LayerNorms; attention and MLP in parallel where the file says so.
"""

from __future__ import annotations

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import (
    Parameter,
    Parts,
    key_size,
    linear,
    mlp,
    norms,
    projections,
    query_size,
    two_matrices,
)
from vramwise.types import ModelSpec


def falcon_kv_heads(fields: Fields, heads: int) -> int:
    """Return the number of key-value heads."""
    if fields.flag("new_decoder_architecture") or not fields.flag("multi_query"):
        return fields.optional_integer("num_kv_heads", "n_head_kv") or heads
    return 1


def falcon_settles(fields: Fields, found: Found) -> Found:
    """Falcon's three blocks: one norm shared in parallel (7B), two norms in parallel (40B, 180B), sequential (RW)."""
    new = fields.flag("new_decoder_architecture")
    parallel = new or fields.flag("parallel_attn")
    count = fields.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    return {
        "parallel_residual": parallel,
        "norms_per_block": count if parallel else 2,
        "rotary_fraction": 0.0 if fields.flag("alibi") else 1.0,
    }


def falcon_block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return the parameters of one block."""
    qkv, out = block.attention
    fused = query_size(model) + 2 * key_size(model)
    yield from linear(qkv, model.hidden_size, fused, model.qkv_bias)
    yield from linear(out, model.hidden_size, model.hidden_size, model.attention_out_bias)
    yield from two_matrices(model, block)
    if model.norms_per_block == 1:
        yield from norms(model, block, "input_layernorm")
    elif model.parallel_residual:
        yield from norms(model, block, "ln_attn", "ln_mlp")
    else:
        yield from norms(model, block, "post_attention_layernorm", "input_layernorm")


def stablelm_settles(fields: Fields, found: Found) -> Found:
    """Set one norm for each block if attention and MLP are parallel."""
    return {"norms_per_block": 1} if found["parallel_residual"] else {}


def stablelm_block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return the parameters of one block."""
    yield from projections(model, block)
    if model.qk_norm != "none":
        yield from _head_norms(model)
    yield from mlp(model)
    yield from norms(model, block)


def _head_norms(model: ModelSpec) -> Parts:
    """Yield one LayerNorm without bias for each head. Their memory in a step is not modelled."""
    for which, heads in (("q", model.num_attention_heads), ("k", model.num_key_value_heads)):
        for head in range(heads):
            yield Parameter(f"self_attn.{which}_layernorm.norms.{head}.weight", (model.head_dim,), "norm")
