"""Flash attention (the library's or torch's own) and torch's memory-efficient attention.

Flash: no mask, grouped queries as they are. Forward: the result and a log-sum-exp. Backward: gradient and result in the
order of tokens, copied if they are not; then gradients, row sums and an fp32 accumulator for dq with tokens rounded up
to 128 (of sequences in one row: 128 more for each) and head sizes to 32; for grouped queries dk and dv of all heads
first, then summed. Sizes follow flash-attention 2 (csrc/flash_attn/flash_api.cpp) and torch's copy of it.

Memory-efficient: what masked batches get on cards without cuDNN's kernel, and old cards always. Sizes follow torch's
aten/native/transformers/cuda/attention_backward.cu and mem_eff_attention/kernel_backward.h (2.11). The backward stages
dq in fp32, in tiles of the chosen kernel's blocks with 16 bytes of bookkeeping each; kernels that cannot keep dk and dv
in registers stage a block of each as well. Which kernel is chosen follows from head width, type and the card's
generation and shared memory.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Backward, Grads, Node, Storage, Tape, Tensor


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _flash_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out, _sums, v, q, k = node.saved[2:7]
    copies = [t.new(x.shape, x.dtype) for x in (grad, out) if x.heads_first and x.shape[1] > 1]
    batch, heads, tokens, width = q.shape
    to_q = t.like(q)
    to_k = t.like(k)
    to_v = t.like(v)
    longest, sequences, in_python = node.extra
    if t.work is not None and in_python:
        t.work.function()
    rounded = tokens + 128 * sequences if sequences else _up(tokens, 128)
    sums = t.new((batch, heads, rounded), FP32)
    accumulated = t.new((batch, rounded, heads, _up(width, 32)), FP32)
    if k.shape[1] != heads:
        wide = [t.new((batch, heads, k.shape[2], width), k.dtype) for _ in range(2)]
        if t.work is not None:
            t.work.no_kernel(*wide)
            for summed in (to_k, to_v):
                t.work.stream(heads * summed.numel // k.shape[1] * k.dtype.size, summed.numel * k.dtype.size)
        del wide
    if t.work is not None:
        made = (to_q, to_k, to_v, sums, accumulated)
        t.work.attention(made, q, k, backward=True, causal=True, longest=longest)
        t.work.stream(2 * q.numel * q.dtype.size, 0)  # row sums before
        t.work.stream(q.numel * 4, q.numel * q.dtype.size)  # and dq out of the accumulator after
    del sums, accumulated
    del copies
    return to_q, to_k, to_v


def _share_keys(t: Tape, q: Tensor, k: Tensor) -> None:
    """Few rows would leave multiprocessors idle: the keys are shared out, and partial results in fp32 summed up."""
    batch, heads, tokens, width = q.shape
    splits = _splits(batch * heads * -(-tokens // 64), 2 * t.hardware.multiprocessors, k.shape[2], width)
    if splits > 1:
        sums = t.new((splits, batch, heads, tokens), FP32)
        results = t.new((splits, batch, heads, tokens, _up(width, 32)), FP32)
        if t.work is not None:
            t.work.no_kernel(sums, results)
        del sums, results


def _splits(blocks: int, places: int, keys: int, width: int) -> int:
    """Return how many parts: the fewest that fill nearly as many multiprocessors as any number would
    (flash-attention's `num_splits_heuristic`)."""
    if blocks >= 0.8 * places:
        return 1
    parts = -(-keys // (256 if width <= 64 else 128 if width <= 128 else 64))
    filled = {}
    for count in range(1, min(128, places, parts) + 1):
        if count == 1 or -(-parts // count) != -(-parts // (count - 1)):
            waves = blocks * count / places
            filled[count] = waves / ceil(waves)
    return next(count for count, share in filled.items() if share >= 0.85 * max(filled.values()))


def takes_tokens_first(backward: Backward) -> bool:
    """Return whether this is flash attention's: what it saves has tokens before heads, in memory as in shape."""
    return backward is _flash_backward


def flash_attention(
    t: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    longest: int | None = None,
    *,
    sequences: int = 0,
    in_python: bool = False,
) -> Tensor:
    """Causal attention over (batch, heads, tokens, width). `longest`: a query meets no more keys than that;
    `sequences`: so many of any length stand one behind the other. `in_python`: the library's own autograd function."""
    v = autocast_input(t, v)
    k = autocast_input(t, k)
    q = autocast_input(t, q)
    out = t.like(q)
    sums = t.new(q.shape[:3], FP32)
    random_state = t.new((2,), INT64)
    unused = t.new((), INT64)
    if not sequences:
        _share_keys(t, q, k)
    if t.work is not None:
        if in_python:
            t.work.function()
        t.work.attention((out, sums, random_state, unused), q, k, backward=False, causal=True, longest=longest)
    t.record(
        out,
        _flash_backward,
        (q, k, v),
        (None, k, q, v, sums, without_node(out), random_state, unused),
        (longest, sequences, in_python),
    )
    del sums, random_state, unused
    return out


# row sums are kept for a multiple of this many queries
_QUERY_MULTIPLE = 32
# masks have rows of a multiple of this many elements; others are copied into such
_MASK_MULTIPLE = 8
# batch × heads × blocks of keys that are worked on at once where dk and dv are staged
_SPLIT_LIMIT = 200


class _Kernel(NamedTuple):
    """Blocks of queries and keys, and whether dk and dv stay in registers."""

    queries: int
    keys: int
    in_registers: bool


def kernel_for(width: int, *, half: bool, hardware: Hardware) -> _Kernel:
    """Return the first backward kernel that takes heads of this width."""
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
    """Return the staging area of the backward."""
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
