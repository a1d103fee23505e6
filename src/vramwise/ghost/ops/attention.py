"""Fused attention (`scaled_dot_product_attention`): result, log-sum-exp, and the workspaces of its backward.

cuDNN (Hopper and datacenter Blackwell, torch ≥ 2.9) keeps the inputs' memory order; its backward workspace holds an
fp32 accumulator for dq, the row sums and, for grouped queries, dk and dv expanded to all heads.

If no fused kernel takes the inputs, torch writes attention out in fp32, scores and all: for unequal head counts that
are not declared as groups (Falcon), and for grouped queries, fp32 or bf16 inputs on cards or in settings that leave
only memory-efficient attention. Follows torch's transformers/attention.cpp (2.11).
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BF16, BOOL, FP32, INT64
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.elementwise import cast, scale, without_node
from vramwise.ghost.ops.flash import efficient_attention, flash_attention
from vramwise.ghost.ops.matmul import autocast_input, batched
from vramwise.ghost.ops.row_kernels import softmax
from vramwise.ghost.ops.shape import interleaved_heads, repeat_heads, transpose_last
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor


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
    """Return the scores with a bias added in place, which gets a gradient in its own type."""
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


# the widest heads that cuDNN's and flash attention's kernels take, forward and backward
_WIDEST = 256


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
    if t.work is not None:
        t.work.attention((to_q, to_k, to_v), q, k, backward=True, causal=node.saved[-1] is None, cudnn=True)
    return to_q, to_k, to_v


def _cudnn(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    seed = t.new((), INT64)
    offset = t.new((), INT64)
    out = t.like(q)
    wants = t.grad_enabled and (q.node is not None or k.node is not None or v.node is not None)
    sums = t.new((*q.shape[:3], 1), FP32) if wants else None
    Storage(t, 256)
    if t.work is not None:
        t.work.attention((out, sums, seed, offset), q, k, backward=False, causal=bias is None, cudnn=True)
    if wants:
        out.node = t.node(_cudnn_backward, (q, k, v), (bias, k, q, v, sums, without_node(out), offset, seed))
    del sums
    return out


def _as_numbers(t: Tape, mask: Tensor, like: Tensor) -> Tensor:
    """Return a boolean mask becomes one of 0 and −inf in the queries' type."""
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
        bias = _as_numbers(t, mask, q) if mask.dtype is BOOL else autocast_input(t, mask)
    learned = t.grad_enabled and bias is not None and bias.node is not None
    kernel = kernel_of(t.hardware, q, k, masked=mask is not None, learned=learned)
    if kernel == "cudnn":
        return _cudnn(t, q, k, v, bias)
    if kernel == "flash":
        return flash_attention(t, q, k, v)
    if kernel == "efficient":
        return efficient_attention(t, q, k, v, bias)
    return math_attention(
        t, q, k, v, causal=mask is None, grouped=q.shape[1] != k.shape[1], bias=bias if learned else None
    )


def kernel_of(hardware: Hardware, q: Tensor, k: Tensor, *, masked: bool, learned: bool = False) -> str:
    """Return the first of the card's kernels that takes these inputs. `learned`: the mask wants a gradient."""
    half = q.dtype is not FP32
    takes = {
        "cudnn": half and not learned and q.shape[-1] <= _WIDEST,
        "flash": half and not masked and q.shape[-1] <= _WIDEST,
        # no grouped queries; bf16 from Ampere on
        "efficient": q.shape[1] == k.shape[1] and (q.dtype is not BF16 or hardware.capability >= (8, 0)),
    }
    return next((kernel for kernel in hardware.attention if takes.get(kernel, False)), "math")
