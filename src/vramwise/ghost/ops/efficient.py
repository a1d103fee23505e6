"""torch's memory-efficient attention: what masked batches get on cards without cuDNN's kernel, and old cards always.

Sizes follow torch's aten/native/transformers/cuda/attention_backward.cu and mem_eff_attention/kernel_backward.h (2.11).
The backward stages dq in fp32, in tiles of the chosen kernel's blocks with 16 bytes of bookkeeping each; kernels that
cannot keep dk and dv in registers stage a block of each as well. Which kernel is chosen follows from head width, type
and the card's generation and shared memory.
"""

from __future__ import annotations

from typing import NamedTuple

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

# row sums are kept for a multiple of this many queries
_QUERY_MULTIPLE = 32
# masks have rows of a multiple of this many elements; others are copied into such
_MASK_MULTIPLE = 8
# batch × heads × blocks of keys that are worked on at once where dk and dv are staged
_SPLIT_LIMIT = 200
_TILE_HEADER_BYTES = 16


class _Kernel(NamedTuple):
    """Blocks of queries and keys, and whether dk and dv stay in registers."""

    queries: int
    keys: int
    in_registers: bool


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def kernel_for(width: int, *, half: bool, hardware: Hardware) -> _Kernel:
    """The first backward kernel that takes heads of this width."""
    if width <= 64:
        return _Kernel(64, 64, half)
    if not half or hardware.capability < (8, 0):
        return _Kernel(128, 64, half and width <= 128)
    if width <= 96 and hardware.capability in ((8, 6), (8, 9)):
        return _Kernel(128, 64, True)
    if width <= 128:
        # the large one needs more shared memory than cards for desktops have
        return _Kernel(128, 128, True) if hardware.large_shared_memory else _Kernel(64, 64, False)
    return _Kernel(128, 64, False)


def workspace_bytes(q: Tensor, k: Tensor, hardware: Hardware) -> int:
    """The staging area of the backward."""
    batch, heads, queries, width = q.shape
    half = q.dtype is not FP32
    kernel = kernel_for(width, half=half, hardware=hardware)
    floats = -(-queries // kernel.queries) * -(-width // kernel.keys) * (kernel.queries * kernel.keys + 4)
    if half and not kernel.in_registers:
        splits = max(1, min(-(-k.shape[2] // kernel.keys), _SPLIT_LIMIT // (batch * heads)))
        floats += 2 * splits * kernel.keys * _up(width, kernel.queries)
    return batch * heads * _up(floats, 4) * 4


def _efficient_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    v, q, k = node.saved[2:5]
    copied = t.new(grad.shape, grad.dtype) if grad.heads_first and grad.shape[1] > 1 else None
    to_q = t.new(q.shape, q.dtype)
    to_k = t.new(k.shape, k.dtype)
    to_v = t.new(v.shape, v.dtype)
    bias = node.saved[-1] if len(node.edges) > 3 else None
    to_bias = None if bias is None else t.new(bias.shape, bias.dtype)
    if q.dtype is FP32:
        product = t.new(q.shape, FP32)
        summed = t.new(q.shape[:3], FP32)
        del product
        sums = t.like(summed)
        del summed
    else:
        sums = t.new(q.shape[:3], FP32)
    Storage(t, workspace_bytes(q, k, t.hardware))
    if t.work is not None:
        t.work.attention((to_q, to_k, to_v), q, k, backward=True, causal=node.saved[-1] is None)
    del sums, copied
    return (to_q, to_k, to_v) if to_bias is None else (to_q, to_k, to_v, to_bias)


def efficient_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention over (batch, heads, tokens, width), as many key heads as query heads; causal where there is no bias."""
    if bias is not None and bias.shape[-1] % _MASK_MULTIPLE:
        bias = t.new((*bias.shape[:-1], _up(bias.shape[-1], _MASK_MULTIPLE)), bias.dtype)
    wants = t.grad_enabled and (q.node is not None or k.node is not None or v.node is not None)
    out = t.new(q.shape, q.dtype)
    sums = t.new((*q.shape[:2], _up(q.shape[2], _QUERY_MULTIPLE)), FP32) if wants else None
    if t.work is not None:
        t.work.attention((out, sums), q, k, backward=False, causal=bias is None)
    if q.shape[-1] > 128 and q.dtype is not FP32:
        t.new(q.shape, FP32)  # too wide to add up in registers
    if wants:
        learned = () if bias is None or bias.node is None else (bias,)
        out.node = t.node(_efficient_backward, (q, k, v, *learned), (bias, k, q, v, sums, without_node(out)))
    return out
