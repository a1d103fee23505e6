"""Unsloth's losses: head and cross entropy, some rows at a time; the gradients are ready on return.

- `unsloth_fused_loss`: chunks of rows, sized by the memory that is free when a run first needs them. Follows
  `UnslothFusedLoss` (unsloth_zoo 2025.9 to 2026.10). The budget is half of the free memory; in 2026.10 at most 4 GiB,
  at 16 bytes per logit, minus what the gradients take. Before that a logit counts 4 bytes, and the number of chunks is
  rounded to the nearest multiple of four: up to twice the budget is one chunk. A chunk is one compiled graph: logits,
  and their gradient in addition.
- `unsloth_row_loss`: one buffer of fp32 logits. Follows `fused_losses/fused_linear.py` (unsloth_zoo 2026.10.9). A
  frozen head on cards from Ampere on is processed in tiles of rows × words instead, from 4,096 labelled rows on (always
  on cards of up to 24 GiB).
"""

from __future__ import annotations

from math import ceil

from vramwise.ghost.dtypes import FP32, INT64, DType
from vramwise.ghost.hardware import Hardware
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
    """Return the loss of hidden states (tokens, width) and the head's weight (words, width).

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
        _fused_work(t, rows, step, width, words, compute.name, products=1 + wants + trained)
    out = t.new((), FP32)
    del shifted, low
    if wants:
        out.node = t.node(_backward, (hidden, weight), (to_hidden, to_weight))
    del to_hidden, to_weight
    return out


def _fused_work(t: Tape, rows: int, step: int, width: int, words: int, dtype: str, *, products: int) -> None:
    """Count the products of each chunk, and a kernel over its logits."""
    assert t.work is not None
    for start in range(0, rows, size := piece_of(rows, step)):
        count = min(size, rows - start)
        for _ in range(products):
            kernel = t.work.stream(2 * (count + words) * width, 2 * count * words, "product")
            kernel.flops, kernel.dims, kernel.dtype = 2.0 * count * words * width, (1, count, words, width), dtype
        t.work.stream(4 * count * words, 2 * count * words, "triton").by = "triton"


# With fewer rows, the product for the gradient would be inefficient.
_FEWEST_LOGITS, _FEWEST_ROWS, _MOST_ROWS = 512 * 151_936, 512, 4096
_MOST_ROW_BYTES = 2 * _GIB
# Row statistics are kept per this many words; heads with fewer than three such parts are never tiled.
_WORDS, _STATISTICS = 16_384, 8
_TILE_BYTES = 256 * 1024**2
_SMALL_CARD_BYTES = int(24.5 * _GIB)


def _power_of_two(number: float) -> int:
    """Return the largest power of two that is not above the number, at least 1."""
    return 1 << max(int(number).bit_length() - 1, 0)


def rows_at_once(rows: int, hidden: int, vocabulary: int, size: int) -> int:
    """Return the rows of logits that exist at a time: as many bytes as the hidden states have, within limits."""
    fewest = min(max(_power_of_two(_FEWEST_LOGITS / vocabulary), _FEWEST_ROWS), _MOST_ROWS)
    wanted = min(max(_power_of_two(rows * hidden / vocabulary), fewest), _MOST_ROWS)
    return max(1, min(wanted, max(_MOST_ROW_BYTES // (vocabulary * size), 2), rows))


def tile(rows: int, vocabulary: int, hardware: Hardware) -> tuple[int, int]:
    """Return the rows and words of a tile."""
    tall = max(min(_MOST_ROWS, rows, _TILE_BYTES // (_WORDS * FP32.size)), 1)
    wide = max(_TILE_BYTES // (tall * FP32.size), _WORDS)
    if _small(hardware):
        wide = _WORDS
    return tall, min(wide - wide % _WORDS, -(-vocabulary // _WORDS) * _WORDS)


def _small(hardware: Hardware) -> bool:
    return hardware.memory_bytes is not None and hardware.memory_bytes <= _SMALL_CARD_BYTES


def _tiled(t: Tape, rows: int, vocabulary: int, *, trained: bool) -> bool:
    enough = _small(t.hardware) or rows >= _MOST_ROWS
    return not trained and enough and t.hardware.capability >= (8, 0) and -(-vocabulary // _WORDS) > 2


def unsloth_row_loss(t: Tape, hidden: Tensor, weight: Tensor, labelled: int) -> Tensor:
    """Return loss of hidden states (tokens, width) and the head's weight (words, width); `labelled` of them count."""
    compute = t.autocast or weight.dtype
    wants = t.grad_enabled and (hidden.node is not None or weight.node is not None)
    trained = wants and weight.node is not None
    chosen = t.new((labelled,), INT64)
    to_hidden = t.like(hidden) if wants else None
    to_weight = t.like(weight) if trained else None
    head = weight if weight.dtype is compute else t.like(weight, compute)
    losses = t.new((labelled,), FP32)
    if _tiled(t, labelled, weight.shape[0], trained=trained):
        _tiles(t, labelled, hidden, weight, compute, wants=wants)
    else:
        _chunks(t, labelled, hidden, weight, compute, wants=wants)
    if t.work is not None:
        t.work.sync()  # the host reads how many rows have a label
        _row_work(t, labelled, hidden.shape[1], weight.shape[0], compute, wants=wants, trained=trained)
    out = t.new((), FP32)
    del losses, head, chosen
    if wants:
        out.node = t.node(_backward, (hidden, weight), (to_hidden, to_weight))
    del to_hidden, to_weight
    return out


def _chunks(t: Tape, labelled: int, hidden: Tensor, weight: Tensor, compute: DType, *, wants: bool) -> None:
    """Allocate one fp32 buffer for all chunks; the gradient overwrites the logits."""
    words, width = weight.shape[0], hidden.shape[1]
    rows = rows_at_once(labelled, width, words, FP32.size)
    buffer = t.new((rows, -(-words // 8) * 8), FP32)
    # both of one chunk are freed after those of the next chunk are allocated
    taken: Tensor | None = None
    wide: Tensor | None = None
    for start in range(0, min(labelled, 2 * rows), rows):
        count = min(rows, labelled - start)
        taken = t.new((count, width), compute)
        t.workspace()
        _statistics(t, count, words)
        if wants:
            wide = t.new((count, width), FP32)
            t.new((count, width), hidden.dtype)
    del wide, taken, buffer


def _tiles(t: Tape, labelled: int, hidden: Tensor, weight: Tensor, compute: DType, *, wants: bool) -> None:
    """Allocate one buffer for all tiles, and the hidden states' gradient of some rows in fp32."""
    words, width = weight.shape[0], hidden.shape[1]
    tall, wide = tile(labelled, words, t.hardware)
    buffer = t.new((tall, wide), FP32)
    summed = t.new((tall, width), FP32) if wants else None
    taken: Tensor | None = None
    for start in range(0, min(labelled, 2 * tall), tall):
        count = min(tall, labelled - start)
        taken = t.new((count, width), compute)
        _statistics(t, count, words)
        t.workspace()
    del taken, summed, buffer


def _statistics(t: Tape, rows: int, words: int) -> None:
    t.new((_STATISTICS, -(-words // _WORDS), rows), FP32)


def _row_work(t: Tape, rows: int, width: int, words: int, compute: DType, *, wants: bool, trained: bool) -> None:
    """Count the products for the logits and the gradients, and a kernel over the logits, for each chunk."""
    work = t.work
    assert work is not None
    step = piece_of(rows, rows_at_once(rows, width, words, FP32.size))
    for start in range(0, rows, step):
        count = min(step, rows - start)
        work.product(None, count, words, width, dtype=compute)
        logits = count * words * FP32.size
        work.stream(2 * logits, logits // 2, "triton").by = "triton"
        if wants:
            work.product(None, count, width, words, dtype=compute)
        if trained:
            work.product(None, words, width, count, dtype=compute)


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return both gradients in new tensors, scaled by that of the loss."""
    to_weight, to_hidden = node.saved
    scaled = None if to_hidden is None else t.like(to_hidden)
    scaled_weight = None if to_weight is None else t.like(to_weight)
    return scaled, scaled_weight
