"""The parameters of blocks: of those specific to one family, and of those whose names the block's facts give.

All in transformers' order.
"""

from __future__ import annotations

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.mixtures import shared_experts
from vramwise.models.families.parts import (
    Parameter,
    Parts,
    attention,
    conv1d,
    key_size,
    linear,
    mlp,
    norm,
    norms,
    projections,
    query_size,
    router,
    two_matrices,
)
from vramwise.types import ModelSpec


def apertus(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return an MLP with a learnable activation."""
    yield from attention(model, block)
    yield from mlp(model)
    yield Parameter("mlp.act_fn.alpha_p", (1,), "other")
    yield Parameter("mlp.act_fn.alpha_n", (1,), "other")
    yield from norms(model, block)


def bailing(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Fused q, k and v; experts beside shared ones."""
    qkv, out = block.attention
    yield from linear(qkv, model.hidden_size, query_size(model) + 2 * key_size(model), model.qkv_bias)
    if model.qk_norm != "none":
        for name in block.head_norms:
            yield from norm(f"attention.{name}", model, block, model.head_dim)
    yield from linear(out, query_size(model), model.hidden_size, model.attention_out_bias)
    yield from shared_experts(model) if sparse else mlp(model)
    yield from norms(model, block)


def cohere(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Norms of q and k with one row of weights for each head."""
    yield from projections(model, block)
    if model.qk_norm != "none":
        yield from norm("self_attn.q_norm", model, block, model.num_attention_heads, model.head_dim)
        yield from norm("self_attn.k_norm", model, block, model.num_key_value_heads, model.head_dim)
    yield from mlp(model)
    yield from norms(model, block)


def glm4(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Norms of outputs are registered after those of inputs."""
    first, after_attention, second, after_mlp = block.norms
    yield from attention(model, block)
    yield from mlp(model)
    yield from norms(model, block, first, second, after_attention, after_mlp)


def gpt2(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Transposed linears."""
    hidden, inner = model.hidden_size, model.intermediate_size
    (qkv, out), (up, down), (first, second) = block.attention, block.plain_mlp, block.norms
    yield from norms(model, block, first)
    yield from conv1d(qkv, hidden, 3 * hidden)
    yield from conv1d(out, hidden, hidden)
    yield from norms(model, block, second)
    yield from conv1d(f"mlp.{up}", hidden, inner)
    yield from conv1d(f"mlp.{down}", inner, hidden)


def gptj(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return one norm, keys and values before queries."""
    query, key, value, out = block.attention
    yield from norms(model, block)
    for name in (key, value, query, out):
        yield from linear(name, model.hidden_size, model.hidden_size, False)
    yield from two_matrices(model, block)


def gpt_neox(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Norms first, fused q, k and v."""
    qkv, out = block.attention
    yield from norms(model, block)
    yield from linear(qkv, model.hidden_size, 3 * model.hidden_size, model.qkv_bias)
    yield from linear(out, model.hidden_size, model.hidden_size, model.attention_out_bias)
    yield from two_matrices(model, block)


def gpt_oss(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return one attention sink for each head; experts with biases, stored as (in, out)."""
    count, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
    yield Parameter("self_attn.sinks", (model.num_attention_heads,), "other")
    yield from attention(model, block)
    yield from router(model, "mlp.router")
    yield Parameter("mlp.router.bias", (count,), "router")
    yield Parameter("mlp.experts.gate_up_proj", (count, hidden, 2 * size), "experts")
    yield Parameter("mlp.experts.gate_up_proj_bias", (count, 2 * size), "experts")
    yield Parameter("mlp.experts.down_proj", (count, size, hidden), "experts")
    yield Parameter("mlp.experts.down_proj_bias", (count, hidden), "experts")
    yield from norms(model, block)


def mpt(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Each norm before what it feeds; no biases."""
    hidden, inner = model.hidden_size, model.intermediate_size
    yield from norm("norm_1", model, block)
    yield from linear("attn.Wqkv", hidden, 3 * hidden, False)
    yield from linear("attn.out_proj", hidden, hidden, False)
    yield from norm("norm_2", model, block)
    yield from linear("ffn.up_proj", hidden, inner, False)
    yield from linear("ffn.down_proj", inner, hidden, False)


def phi3(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Return the output projection before the fused one."""
    qkv, out = block.attention
    yield from linear(out, query_size(model), model.hidden_size, False)
    yield from linear(qkv, model.hidden_size, query_size(model) + 2 * key_size(model), False)
    yield from mlp(model)
    yield from norms(model, block)


def by_names(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    """Yield attention and MLP, each after its norm, or before it if norms follow the sums."""
    first, second = block.norms
    attention, feed_forward = _named_attention(model, block), two_or_three(model, block)
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


def _named_attention(model: ModelSpec, block: Block) -> Parts:
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
