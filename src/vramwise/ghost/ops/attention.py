"""Fused attention (`scaled_dot_product_attention`): result, log-sum-exp, and the workspaces of its backward.

cuDNN (Hopper and datacenter Blackwell, torch ≥ 2.9) keeps the inputs' memory order; its backward workspace holds an
fp32 accumulator for dq, the row sums and, for grouped queries, dk and dv expanded to all heads. The other kernels are
in `flash`, `efficient` and `math_attention`; here stands which one is taken.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BF16, BOOL, FP32, INT64
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.efficient import efficient_attention
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.flash import flash_attention
from vramwise.ghost.ops.math_attention import math_attention
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

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
    """The first of the card's kernels that takes these inputs. `learned`: the mask wants a gradient."""
    half = q.dtype is not FP32
    takes = {
        "cudnn": half and not learned and q.shape[-1] <= _WIDEST,
        "flash": half and not masked and q.shape[-1] <= _WIDEST,
        # no grouped queries; bf16 from Ampere on
        "efficient": q.shape[1] == k.shape[1] and (q.dtype is not BF16 or hardware.capability >= (8, 0)),
    }
    return next((kernel for kernel in hardware.attention if takes.get(kernel, False)), "math")
