"""`scaled_dot_product_attention` where no fused kernel takes the inputs: written out in fp32, scores and all.

That is: unequal head counts that are not declared as groups (Falcon), and grouped queries, fp32 or bf16 inputs on cards
or in settings that leave only memory-efficient attention. Follows torch's transformers/attention.cpp (2.11).
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BOOL, FP32
from vramwise.ghost.ops.elementwise import cast, scale, without_node
from vramwise.ghost.ops.matmul import batched
from vramwise.ghost.ops.shape import interleaved_heads, repeat_heads, transpose_last
from vramwise.ghost.ops.softmax import softmax
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


def math_attention(
    t: Tape, query: Tensor, key: Tensor, value: Tensor, *, causal: bool, grouped: bool, bias: Tensor | None = None
) -> Tensor:
    """Attention over (batch, heads, tokens, width). A mask that is given is added in place; a causal one is made.

    `bias`: a mask that wants a gradient.
    """
    amp, t.autocast = t.autocast, None
    output = _written_out(t, query, key, value, causal=causal, grouped=grouped, bias=bias)
    t.autocast = amp
    return output


def _written_out(
    t: Tape, query: Tensor, key: Tensor, value: Tensor, *, causal: bool, grouped: bool, bias: Tensor | None
) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    wide_query, wide_key, wide_value = [cast(t, tensor, FP32) for tensor in (query, key, value)]
    left = scale(t, wide_query)
    mask = _causal_mask(t, query.shape[2]) if causal else None
    keys, values = wide_key, wide_value
    if grouped:
        keys, values = interleaved_heads(t, wide_key, groups), interleaved_heads(t, wide_value, groups)
    # heads that are not declared as groups are expanded by the products themselves
    scores = batched(t, left, transpose_last(t, repeat_heads(t, scale(t, keys), 1 if grouped else groups)))
    if bias is not None:
        scores = _added(t, scores, bias)
    weights = softmax(t, scores)
    t.like(weights, BOOL)  # rows that are masked throughout
    del scores
    # a copy of the weights in the queries' type is handed out beside the result, and dropped
    low = cast(t, weights, query.dtype)
    output = batched(t, weights, repeat_heads(t, values, 1 if grouped else groups))
    output = cast(t, output, query.dtype)
    del values, keys, left, mask, wide_value, wide_key, wide_query, weights, low
    return output


def _added(t: Tape, scores: Tensor, bias: Tensor) -> Tensor:
    """The scores with a bias added in place, which gets a gradient in its own type."""
    out = without_node(scores)
    if t.grad_enabled:
        out.node = t.node(_added_backward, (scores, bias), ())
        out.node.extra = (bias.shape, bias.dtype)
    return out


def _added_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return grad, t.new(*node.extra)


def _causal_mask(t: Tape, tokens: int) -> Tensor:
    """Ones, their lower triangle, and numbers to add."""
    ones = t.new((tokens, tokens), BOOL)
    lower = t.like(ones)
    del ones
    return t.like(lower, FP32)
