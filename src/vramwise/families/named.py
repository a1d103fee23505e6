"""Blocks of two parts whose parameters have the names that the block's facts give."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, key_size, linear, norm, projections, query_size
from vramwise.types import ModelSpec


def by_names(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Yield attention and MLP, each after its norm, or before it if norms follow the sums."""
    first, second = block.norms
    attention, feed_forward = _attention(model, block), two_or_three(model, block)
    if block.order == "joined":
        yield from attention
        yield from norm(first, model, block)
        yield from feed_forward
        yield from norm(second, model, block)
        return
    yield from norm(first, model, block)
    yield from attention
    yield from norm(second, model, block)
    yield from feed_forward


def _attention(model: ModelSpec, block: Block) -> Parts:
    if block.fused_attention is None:
        yield from projections(model, block)
        return
    qkv, out = block.attention
    yield from linear(qkv, model.hidden_size, query_size(model) + 2 * key_size(model), model.qkv_bias)
    yield from linear(out, query_size(model), model.hidden_size, model.attention_out_bias)


def two_or_three(model: ModelSpec, block: Block) -> Parts:
    """Yield an MLP of two matrices, or of three of which two may be one."""
    hidden, inner = model.hidden_size, model.intermediate_size
    start = f"{block.feed_forward}." if block.feed_forward else ""
    if model.fused_gate_up:
        first, last = [f"{start}{name}" for name in block.fused_mlp]
        yield from linear(first, hidden, 2 * inner, model.mlp_bias)
        yield from linear(last, inner, hidden, model.mlp_bias)
        return
    *wide, last = [f"{start}{name}" for name in (block.gated_mlp if model.gated_mlp else block.plain_mlp)]
    for name in wide:
        yield from linear(name, hidden, inner, model.mlp_bias)
    yield from linear(last, inner, hidden, model.mlp_bias)


def halved(fields: Fields, found: Found) -> Found:
    """Qwen 1: the file's width is that of gate and up together."""
    return {"intermediate_size": found["intermediate_size"] // 2}


def groups(fields: Fields, heads: int) -> int:
    """ChatGLM: as many key heads as there are groups."""
    return fields.optional_integer("multi_query_group_num") or heads


def normed_table(model: ModelSpec) -> Parts:
    """Bloom: a norm of the embeddings."""
    for end in ("weight", "bias"):
        yield Parameter(f"transformer.word_embeddings_layernorm.{end}", (model.hidden_size,), "norm")
