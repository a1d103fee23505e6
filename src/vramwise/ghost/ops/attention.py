"""Fused attention (`scaled_dot_product_attention`): result, log-sum-exp, and the workspaces of its backward.

cuDNN (Hopper and datacenter Blackwell, torch ≥ 2.9) keeps the inputs' memory order; its backward workspace holds an
fp32
accumulator for dq, the row sums and, for grouped queries, dk and dv expanded to all heads. Flash attention takes
the same things as separate tensors, with tokens rounded up to 128 and head sizes to 32.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BF16, BOOL, FP32, INT64
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.flash import flash_attention
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.ops.shape import alias
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

# the widest heads that cuDNN's kernels take, forward and backward
_CUDNN_WIDTH = 256


def _cudnn_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    v, q, k = node.saved[4:7]
    to_q = t.like(q)
    to_k = t.like(k)
    to_v = t.like(v)
    batch, heads, tokens, width = q.shape
    workspace = batch * heads * tokens * 4 + q.numel * 4 + 256
    if k.shape[1] != heads:
        workspace += 2 * batch * heads * k.shape[2] * width * k.dtype.size
    Storage(t, workspace)
    return to_q, to_k, to_v


def _cudnn(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    seed = t.new((), INT64)
    offset = t.new((), INT64)
    out = t.like(q)
    wants = t.grad_enabled and (q.node is not None or k.node is not None or v.node is not None)
    sums = t.new((*q.shape[:3], 1), FP32) if wants else None
    Storage(t, 256)
    if wants:
        out.node = t.node(_cudnn_backward, (q, k, v), (bias, k, q, v, sums, without_node(out), offset, seed))
    del sums
    return out


def _as_numbers(t: Tape, mask: Tensor, like: Tensor) -> Tensor:
    """A boolean mask becomes one of 0 and −inf in the queries' type."""
    low = t.new((), BF16)
    high = t.new((), BF16)
    out = t.new(mask.shape, like.dtype)
    del high
    del low
    return out


def fused_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention over (batch, heads, tokens, width) by the kernel that the card gets; causal where there is no mask."""
    v = autocast_input(t, v)
    k = autocast_input(t, k)
    q = autocast_input(t, q)
    bias = None
    if mask is not None:
        bias = _as_numbers(t, mask, q) if mask.dtype is BOOL else mask
    if t.hardware.cudnn_attention and q.dtype is not FP32 and q.shape[-1] <= _CUDNN_WIDTH:
        return _cudnn(t, q, k, v, bias)
    return flash_attention(t, q, k, v, bias)


def _repeat_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.new(node.extra, grad.dtype)
    out.heads_first = True
    return (out,)


def repeat_heads(t: Tape, x: Tensor, groups: int) -> Tensor:
    """`repeat_kv`: a copy in which each key or value head stands once for every query head of its group."""
    if groups == 1:
        return x
    batch, heads, tokens, width = x.shape
    shape = (batch, heads * groups, tokens, width)
    if heads == 1:
        # a single head is repeated without a copy
        out = alias(x, shape)
        out.numel = x.numel * groups
    else:
        out = t.new(shape, x.dtype)
        out.heads_first = True
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_repeat_backward, (x,), ())
        out.node.extra = x.shape
    return out
