"""Head and cross entropy in chunks of rows, sized by the memory that is free when a run first needs them.

Follows `UnslothFusedLoss` (unsloth_zoo 2025.9 to 2026.10). The budget is half of the free memory; in 2026.10 at most 4
GiB, at 16 bytes per logit, minus what the gradients take. Before that a logit counts 4 bytes, and the number of chunks
is rounded to the nearest multiple of four: up to twice the budget is one chunk. A chunk is one compiled graph: logits,
and their gradient in addition.
"""

from __future__ import annotations

from math import ceil

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Grads, Node, Tape, Tensor
from vramwise.ghost.work import piece_of
from vramwise.timeline import Action

_GIB = 1024**3
_BYTES_A_LOGIT, _BYTES_A_LOGIT_BEFORE = 16, 4
_MOST_BYTES = 4 * _GIB
_LEAST_BYTES = 64 * 1024**2
# The part of a card that is not available to the allocator.
_CONTEXT_BYTES = _GIB // 2
_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)


def free_budget(t: Tape, *, capped: bool = True) -> int:
    """Return half of the card's free memory at this moment, judging by the run's own tensors."""
    if t.hardware.memory_bytes is None:
        return _MOST_BYTES
    most = _MOST_BYTES if capped else t.hardware.memory_bytes
    signs = {_ALLOC: 1, _FREE: -1}
    held = sum([signs.get(event[0], 0) * event[2] for event in t.events])
    return max(_LEAST_BYTES, min(most, (t.hardware.memory_bytes - _CONTEXT_BYTES - held) // 2))


def chunks_for(rows: int, vocabulary: int, budget: int, fixed: int) -> int:
    """Return the number of chunks: one if everything fits, otherwise a multiple of four."""
    room = budget - fixed if 0 < fixed < budget else budget
    wanted = rows * vocabulary * _BYTES_A_LOGIT / room
    return 1 if wanted <= 1 else min(ceil(wanted / 4) * 4, rows)


def nearest_chunks_for(rows: int, vocabulary: int, budget: int) -> int:
    """Return the number of chunks before 2026.10."""
    return min(max(round(rows * vocabulary * _BYTES_A_LOGIT_BEFORE / budget / 4) * 4, 1), rows)


def unsloth_fused_loss(t: Tape, hidden: Tensor, weight: Tensor, budget: int, *, nearest: bool = False) -> Tensor:
    """The loss of hidden states (tokens, width) and the head's weight (words, width).

    `nearest`: chunks are counted as before 2026.10.
    """
    (rows, width), words = hidden.shape, weight.shape[0]
    wants = t.grad_enabled and (hidden.node is not None or weight.node is not None)
    trained = wants and weight.node is not None
    shifted = t.new((rows,), INT64)
    to_hidden = t.like(hidden) if wants else None
    to_weight = t.like(weight) if trained else None
    fixed = sum([2**n * one.numel * one.dtype.size for n, one in enumerate((to_hidden, to_weight)) if one is not None])
    chunks = nearest_chunks_for(rows, words, budget) if nearest else chunks_for(rows, words, budget, fixed)
    step = -(-rows // chunks)
    compute = weight.dtype
    low = autocast_input(t, hidden) if hidden.dtype is not compute else hidden
    for start in range(0, min(rows, 2 * step), step):
        count = min(step, rows - start)
        logits = t.new((count, words), compute)
        t.workspace()
        if wants:
            to_logits = t.new((count, words), compute)
            del logits
            part = t.new((count, width), hidden.dtype)
            part_of_weight = t.like(weight) if trained else None
            del part_of_weight, part, to_logits
    if t.work is not None:
        _work(t, rows, step, width, words, compute.name, products=1 + wants + trained)
    out = t.new((), FP32)
    del shifted, low
    if wants:
        out.node = t.node(_backward, (hidden, weight), (to_hidden, to_weight))
    del to_hidden, to_weight
    return out


def _work(t: Tape, rows: int, step: int, width: int, words: int, dtype: str, *, products: int) -> None:
    """Count the products of each chunk, and a kernel over its logits."""
    assert t.work is not None
    for start in range(0, rows, size := piece_of(rows, step)):
        count = min(size, rows - start)
        for _ in range(products):
            kernel = t.work.stream(2 * (count + words) * width, 2 * count * words, "product")
            kernel.flops, kernel.dims, kernel.dtype = 2.0 * count * words * width, (1, count, words, width), dtype
        t.work.stream(4 * count * words, 2 * count * words, "triton").by = "triton"


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return both gradients in new tensors, scaled by that of the loss."""
    to_weight, to_hidden = node.saved
    scaled = None if to_hidden is None else t.like(to_hidden)
    return scaled, None if to_weight is None else t.like(to_weight)
