"""Cross entropy and the embedding table: ops of the vocabulary's size."""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.ops.elementwise import gradient_as, without_node
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

# up to this many tokens the embedding's gradient is accumulated directly; above, the token ids are sorted first
_UNSORTED_TOKENS = 3072
_PART_ROWS = 10
_SCAN_BYTES = 1279
# A softmax row larger than this does not fit into a block's shared memory and is read again for every pass: for the
# maximum, the sum and the result; in backward for the sum and the result.
_ROW_IN_SHARED_MEMORY = 200 * 1024


def _log_softmax_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.like(grad)
    if t.work is not None:
        t.work.reads(out, *(grad,) * (4 if _leaves_shared_memory(grad) else 2))
    return (out,)


def _leaves_shared_memory(x: Tensor) -> bool:
    return x.shape[-1] * x.dtype.size > _ROW_IN_SHARED_MEMORY


def log_softmax(t: Tape, x: Tensor) -> Tensor:
    """`log_softmax(x, -1)`: saves its result."""
    out = t.like(x)
    if t.work is not None and _leaves_shared_memory(x):
        t.work.reads(out, x, x, x)
    return t.record(out, _log_softmax_backward, (x,), (without_node(out),))


def nll_loss(t: Tape, x: Tensor, target: Tensor) -> Tensor:
    """`nll_loss` with a sum or mean: two scalars.

    Saves the log-probabilities' shape, the targets and the total weight.
    """
    out = t.new((), x.dtype)
    total_weight = t.new((), x.dtype)
    if t.work is not None:
        t.work.no_kernel(total_weight)
    t.record(out, gradient_as, (x,), (without_node(x), target, total_weight), (x.shape, FP32))
    del total_weight
    return out


def compiled_cross_entropy(t: Tape, x: Tensor, target: Tensor) -> Tensor:
    """`torch.compile` of a summed cross entropy in fp32: the casts are inside the kernels.

    Saves its inputs, and the maximum and the log of the sum per row; the gradient has x's dtype.
    """
    largest = t.new((x.shape[0], 1), FP32)
    logarithm = t.new((x.shape[0], 1), FP32)
    out = t.new((), FP32)
    if t.work is not None:
        t.work.fused((largest, logarithm), "triton", read=2 * x.numel * x.dtype.size)
    return t.record(out, gradient_as, (x,), (without_node(x), target, largest, logarithm), (x.shape, x.dtype))


def _embedding_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, tokens = node.extra
    if tokens <= _UNSORTED_TOKENS:
        return (t.new(shape, grad.dtype),)
    sorted_ids = t.new((tokens,), INT64)
    order = t.new((tokens,), INT64)
    positions = t.new((tokens,), INT64)
    Storage(t, sort_bytes(tokens))
    del positions
    out = t.new(shape, grad.dtype)
    _sum_segments(t, shape, tokens)
    del order, sorted_ids
    return (out,)


def sort_bytes(count: int) -> int:
    """Temporary space of CUB's radix sort of (int64, int64) pairs: a second copy of both, and histograms."""
    return 2 * count * 8 + 16895 + count // 4


def _sum_segments(t: Tape, shape: tuple[int, ...], tokens: int) -> None:
    """Rows of equal ids form segments, cut into parts of ten rows; each part is summed in fp32."""
    segments = min(tokens, shape[0])
    parts = tokens // _PART_ROWS + segments
    offsets = t.new((segments,), INT64)
    count = t.new((), INT64)
    unused = t.new((tokens,), INT64)
    Storage(t, _SCAN_BYTES)
    del unused
    parts_each = t.new((segments,), INT64)
    parts_before = t.new((segments,), INT64)
    Storage(t, _SCAN_BYTES)
    part_count = t.new((), INT64)
    part_offsets = t.new((parts,), INT64)
    sums = t.new((parts, shape[1]), FP32)
    del sums
    del part_offsets, part_count, parts_before, parts_each, count, offsets


def embedding(t: Tape, weight: Tensor, ids: Tensor) -> Tensor:
    """Return a lookup: saves the ids; the gradient has the whole table's size."""
    return t.record(
        t.new((*ids.shape, weight.shape[1]), weight.dtype),
        _embedding_backward,
        (weight,),
        (ids,),
        (weight.shape, ids.numel),
    )
