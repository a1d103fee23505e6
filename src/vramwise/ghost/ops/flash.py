"""Flash attention, the library's or torch's own: no mask, grouped queries as they are.

Forward: the result and a log-sum-exp. Backward: gradient and result in the order of tokens, copied if they are not;
then gradients, row sums and an fp32 accumulator for dq with tokens rounded up to 128 (of sequences in one row: 128 more
for each) and head sizes to 32; for grouped queries dk and dv of all heads first, then summed.
Sizes follow flash-attention 2 (csrc/flash_attn/flash_api.cpp) and torch's copy of it.
"""

from __future__ import annotations

from math import ceil

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Backward, Grads, Node, Tape, Tensor


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
    """How many parts: the fewest that fill nearly as many multiprocessors as any number would
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
    """Whether this is flash attention's: what it saves has tokens before heads, in memory as in shape."""
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
    if t.grad_enabled and (q.node is not None or k.node is not None or v.node is not None):
        out.node = t.node(_flash_backward, (q, k, v), (None, k, q, v, sums, without_node(out), random_state, unused))
        out.node.extra = (longest, sequences, in_python)
    del sums, random_state, unused
    return out
