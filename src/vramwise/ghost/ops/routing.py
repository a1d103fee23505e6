"""Ops of mixtures of experts: top-k, sorting by expert, gathering rows, grouped products, masked fills.

The temporaries of sorting and of the grouped kernel are small; their sizes are those of CUB's radix sort of pairs and
of CUTLASS's per-group arguments, as seen on Hopper with torch 2.11.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64, DType
from vramwise.ghost.ops.elementwise import gradient_as, gradient_of_shape, like_gradient, without_node
from vramwise.ghost.ops.loss import sort_bytes
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

# sorting only indices needs this much less than sorting pairs
_KEYS_LESS = 12288
_GROUP_ARGUMENTS = 60
_GROUP_WORKSPACE = 67584


def topk(t: Tape, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`torch.topk(x, k)`: values and indices; saves the indices."""
    shape = (*x.shape[:-1], count)
    values = t.new(shape, x.dtype)
    indices = t.new(shape, INT64)
    t.record(values, gradient_of_shape, (x,), (indices,), x.shape)
    return values, indices


def sort(t: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.sort(x)` of indices: sorted values and their original positions."""
    values = t.new(x.shape, INT64)
    order = t.new(x.shape, INT64)
    sort_buffers(t, x.numel)
    if t.work is not None:
        t.work.of_many(8, values)  # a radix sort: several small passes
        t.work.no_kernel(order)
    return values, order


def sort_buffers(t: Tape, count: int) -> None:
    """Allocate what sorting that many indices needs besides its results."""
    positions = t.new((count,), INT64)
    Storage(t, sort_bytes(count))
    del positions


def accumulation_buffers(t: Tape, rows: int) -> None:
    """Allocate what `index_put_(…, accumulate=True)` needs: it sorts the indices of the rows that it adds."""
    first = t.new((rows,), INT64)
    linear = t.new((rows,), INT64)
    del first
    buffers = [t.new((rows,), INT64) for _ in range(3)]
    if t.work is not None:
        t.work.of_many(8, linear)
    Storage(t, sort_bytes(rows) - _KEYS_LESS)
    while buffers:
        buffers.pop()
    del linear


def _gather_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return zeros of the source's shape, into which rows are added after sorting their indices."""
    shape, rows = node.extra
    out = t.new(shape, grad.dtype)
    accumulation_buffers(t, rows)
    if t.work is not None:
        t.work.stream(grad.numel * grad.dtype.size, grad.numel * grad.dtype.size, "scatter")
    return (out,)


def gather_rows(t: Tape, x: Tensor, index: Tensor) -> Tensor:
    """`x[index]`: a copy of rows; saves the index."""
    out = t.new((index.numel, *x.shape[1:]), x.dtype)
    if t.work is not None:
        t.work.named(out, "scatter")
    return t.record(out, _gather_backward, (x,), (index,), (x.shape, index.numel))


def masked_fill(t: Tape, x: Tensor, mask: Tensor) -> Tensor:
    """`x.masked_fill(mask, 0)`: saves the mask."""
    return t.record(t.like(x), like_gradient, (x,), (mask,))


def masked_fill_in_place(t: Tape, x: Tensor, mask: Tensor) -> Tensor:
    """`x.masked_fill_(mask, 0)`"""
    if not t.grad_enabled or x.node is None:
        return x
    out = without_node(x)
    out.node = t.node(like_gradient, (x,), (mask,))
    return out


def grouped_buffers(t: Tape, groups: int, dtype: DType) -> None:
    """Allocate the grouped kernel's buffers; there are none in fp32, where each group is a separate product."""
    if dtype is FP32:
        return
    arguments = Storage(t, groups * _GROUP_ARGUMENTS)
    Storage(t, _GROUP_WORKSPACE)
    del arguments


def _grouped_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    x_shape, w_shape = node.extra
    to_weight = to_x = None
    if node.edges[1] is not None:
        to_weight = t.new(w_shape, grad.dtype)
        grouped_buffers(t, w_shape[0], grad.dtype)
        to_weight.view = True
    if node.edges[0] is not None:
        to_x = t.new(x_shape, grad.dtype)
        grouped_buffers(t, w_shape[0], grad.dtype)
    if t.work is not None:
        experts, each = w_shape[0], -(-x_shape[0] // w_shape[0])
        if to_weight is not None:
            t.work.grouped(to_weight, grad.shape[1], x_shape[1], each, experts, grad.dtype)
        if to_x is not None:
            t.work.grouped(to_x, each, x_shape[1], grad.shape[1], experts, grad.dtype)
    return to_x, to_weight


def grouped_product(t: Tape, x: Tensor, weight: Tensor, offsets: Tensor, outputs: int) -> Tensor:
    """Multiply rows sorted by expert with each expert's matrix (`grouped_mm`)."""
    out = t.new((x.shape[0], outputs), x.dtype)
    if t.work is not None:
        experts, (rows, inner) = weight.shape[0], x.shape
        t.work.grouped(out, -(-rows // experts), outputs, inner, experts, x.dtype)
    grouped_buffers(t, weight.shape[0], x.dtype)
    if t.grad_enabled and (x.node is not None or weight.node is not None):
        saved = (
            weight if x.node is not None else None,
            offsets,
            x if weight.node is not None else None,
        )
        out.node = t.node(_grouped_backward, (x, weight), saved)
        out.node.extra = (x.shape, weight.shape)
    return out


def _folded_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return batched products with the other factor, each scaled afterwards."""
    left, right = node.extra
    to_left = t.new(left, grad.dtype)
    t.workspace()
    to_left = t.like(to_left)
    to_right = t.new(right, grad.dtype)
    to_right = t.like(to_right)
    return to_left, to_right


def folded_weight(t: Tape, weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`baddbmm(weight, left, right)`: the experts' weights with their adapters merged, as large as the weights."""
    out = t.new(weight.shape, weight.dtype)
    t.like(left)  # the permuted factor, made contiguous for the product
    t.workspace()
    return t.record(out, _folded_backward, (left, right), (left, right), (left.shape, right.shape))


def sum_copies(t: Tape, x: Tensor, tokens: int, dtype: DType) -> Tensor:
    """`x.view(tokens, k, width).sum(1)`"""
    return t.record(t.new((tokens, x.shape[-1]), dtype), gradient_as, (x,), (), (x.shape, x.dtype))


def _norm_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    pieces = [t.like(grad) for _ in range(3)]
    out = t.like(grad)
    del pieces
    return (out,)


def normalise_rows(t: Tape, x: Tensor) -> Tensor:
    """`x /= x.sum(-1, keepdim=True)`: the dividend is copied before it is overwritten."""
    total = t.new((*x.shape[:-1], 1), x.dtype)
    if not t.grad_enabled or x.node is None:
        del total
        return x
    out = without_node(x)
    before = t.like(x)
    out.node = t.node(_norm_backward, (x,), (total, before))
    return out
