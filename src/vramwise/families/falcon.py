"""Falcon: fused q, k and v with few key heads, LayerNorms, a two-matrix MLP, in one of three orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import ALL_BIASES, LAYER_NORM_MLP, Block, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, key_size, linear, norms, query_size, two_matrices
from vramwise.types import ModelSpec


def _kv_heads(fields: Fields, heads: int) -> int:
    if fields.flag("new_decoder_architecture") or not fields.flag("multi_query"):
        return fields.optional_integer("num_kv_heads", "n_head_kv") or heads
    return 1


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Falcon's three blocks: one norm shared in parallel (7B), two norms in parallel (40B, 180B), sequential (RW)."""
    new = fields.flag("new_decoder_architecture")
    parallel = new or fields.flag("parallel_attn")
    count = fields.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    return {
        "parallel_residual": parallel,
        "norms_per_block": count if parallel else 2,
        "rotary_fraction": 0.0 if fields.flag("alibi") else 1.0,
    }


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
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


FAMILY = Family(
    name="falcon",
    block=Block(
        order="pre, kept",
        parallel="residual, (mlp, attention)",
        parallel_norms=("ln_attn", "ln_mlp"),
        fused_attention="copied by index",
        attention=("self_attention.query_key_value", "self_attention.dense"),
        undeclared_groups=True,
        plain_mlp=("dense_h_to_4h", "dense_4h_to_h"),
        linear="bias added apart",
    ),
    layout=Layout(
        block=_block,
        layers="transformer.h",
        embedding="transformer.word_embeddings",
        final_norm="transformer.ln_f",
    ),
    types={
        "falcon": model_type(
            sizes=(65024, 4 * 4544, 71, None, 2048),
            fixed={**LAYER_NORM_MLP, "fused_qkv": True},
            switches=dict.fromkeys(ALL_BIASES, "bias"),
            kv_heads=_kv_heads,
            computes_head_dim=True,
            mlp_width="ffn_hidden_size",
            settles=_settles,
            tie_word_embeddings=True,
            hidden_act="gelu",
            multi_query=True,
            parallel_attn=True,
        )
    },
)
