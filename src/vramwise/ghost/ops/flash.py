"""Flash attention, the library's or torch's own, and torch's memory-efficient attention where there is a mask.

Forward: the result and a log-sum-exp. Backward: gradients, row sums and an fp32 accumulator for dq with tokens rounded
up to 128 and head sizes to 32; for grouped queries dk and dv of all heads first, then summed.
Sizes follow flash-attention 2 (csrc/flash_attn/flash_api.cpp) and torch's copy of it.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _flash_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    v, q, k = node.saved[3:6]
    batch, heads, tokens, width = q.shape
    to_q = t.like(q)
    to_k = t.like(k)
    to_v = t.like(v)
    sums = t.new((batch, heads, _up(tokens, 128)), FP32)
    accumulated = t.new((batch, _up(tokens, 128), heads, _up(width, 32)), FP32)
    if k.shape[1] != heads:
        wide = [t.new((batch, heads, k.shape[2], width), k.dtype) for _ in range(2)]
        del wide
    del sums, accumulated
    return to_q, to_k, to_v


def _efficient_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    v, q, k = node.saved[3:6]
    to_q = t.like(q)
    to_k = t.like(k)
    to_v = t.like(v)
    sums = t.new(q.shape[:3], FP32)
    # partial sums of dq, dk and dv in fp32
    workspace = t.new((q.numel + k.numel + v.numel,), FP32)
    del workspace, sums
    return to_q, to_k, to_v


def _attend(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, rounding: int) -> Tensor:
    out = t.like(q)
    sums = t.new((*q.shape[:2], _up(q.shape[2], rounding)), FP32)
    random_state = t.new((2,), INT64)
    if t.grad_enabled and (q.node is not None or k.node is not None or v.node is not None):
        step = _flash_backward if bias is None else _efficient_backward
        out.node = t.node(step, (q, k, v), (bias, k, q, v, sums, without_node(out), random_state))
    del sums, random_state
    return out


def flash_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attention over (batch, heads, tokens, width); with a bias the memory-efficient kernel takes its place."""
    v = autocast_input(t, v)
    k = autocast_input(t, k)
    q = autocast_input(t, q)
    return _attend(t, q, k, v, bias, 1 if bias is None else 32)
