"""Views, copies and joins: ops that move or rename elements. A view is free, but may cause a copy in backward.

Also key and value heads repeated for the query heads of their group, and padding that is removed: the rows of all
tokens are gathered into one row of real ones, and put back.
"""

from __future__ import annotations

from vramwise.ghost.ops.elementwise import all_gradients, gradient_as, gradient_of_shape, same_gradient
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


def alias(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor with the same storage and another shape, without a gradient."""
    out = Tensor(x.storage, shape, x.numel, x.dtype)
    out.view = True
    out.heads_first = x.heads_first
    return out


def _view_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    copied = grad.heads_first and (len(grad.shape) != 4 or grad.shape[1] > 1)
    out = t.new(node.extra, grad.dtype) if copied else alias(grad, node.extra)
    if t.work is not None and copied:
        t.work.named(out, "strided")
    return (out,)


def view(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x.view(shape)`, transposed or not. A gradient in another memory order is copied in backward."""
    return t.record(alias(x, shape), _view_backward, (x,), (), x.shape)


def _swap_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = alias(grad, node.extra)
    out.heads_first = grad.heads_first and grad.shape[1] > 1
    return (out,)


def swap_heads(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x.transpose(1, 2)` between tokens and heads: a view; a gradient in another memory order passes unchanged."""
    return t.record(alias(x, shape), _swap_backward, (x,), (), x.shape)


def _turn_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (alias(grad, node.extra),)


def transpose_last(t: Tape, x: Tensor) -> Tensor:
    """`x.transpose(-2, -1)` for a matrix product, which accepts either order: a view in both directions."""
    return t.record(alias(x, (*x.shape[:-2], x.shape[-1], x.shape[-2])), _turn_backward, (x,), (), x.shape)


def _slice_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.new(node.extra, grad.dtype)
    out.heads_first = len(out.shape) == 4
    if t.work is not None:
        t.work.stream(grad.numel * grad.dtype.size, grad.numel * grad.dtype.size, "strided")  # into the zeros
    return (out,)


def narrow(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a slice of x: a view. Its backward creates zeros of x's whole shape and copies into them."""
    return x if shape == x.shape else sliced(t, x, shape)


def sliced(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the same even if the slice is all of x: `x[-n:]` of n is a slice to autograd, `x[:n]` is not."""
    numel = 1
    for side in shape:
        numel *= side
    out = Tensor(x.storage, shape, numel, x.dtype)
    out.view = True
    out.heads_first = x.heads_first
    return t.record(out, _slice_backward, (x,), (), x.shape)


def indexed(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x[…, [i], :]`: an index, not a slice: a copy. Its backward fills zeros of x's whole shape."""
    return t.record(t.new(shape, x.dtype), _slice_backward, (x,), (), x.shape)


def expanded(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x.expand(shape)`: a view; its gradient is summed back."""
    out = alias(x, shape)
    out.numel = 1
    for side in shape:
        out.numel *= side
    return t.record(out, gradient_of_shape, (x,), (), x.shape)


def _cat_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    parts: list[Tensor | None] = []
    for edge, shape in zip(node.edges, node.extra, strict=True):
        if edge is None:
            parts.append(None)
            continue
        numel = 1
        for side in shape:
            numel *= side
        part = Tensor(grad.storage, shape, numel, grad.dtype)
        part.view = True
        part.heads_first = grad.heads_first
        parts.append(part)
    return tuple(parts)


def cat_last(t: Tape, parts: tuple[Tensor, ...]) -> Tensor:
    """`torch.cat(parts, dim=-1)`: a contiguous result; gradients are views of its gradient."""
    first = parts[0]
    out = t.new((*first.shape[:-1], sum([part.shape[-1] for part in parts])), first.dtype)
    out.heads_first = len(out.shape) == 4
    if t.work is not None:
        t.work.named(out, "strided")
    return t.record(out, _cat_backward, parts, (), tuple([part.shape for part in parts]))


def contiguous(t: Tape, x: Tensor) -> Tensor:
    """`x.contiguous()` of a tensor whose memory order is not its shape's: a copy; the gradient passes unchanged."""
    out = t.new(x.shape, x.dtype)
    if t.work is not None:
        t.work.named(out, "strided")
    return t.record(out, same_gradient, (x,))


def cloned(t: Tape, x: Tensor) -> Tensor:
    """`x.clone()`"""
    return t.record(t.like(x), same_gradient, (x,))


def _chunk_backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    """Join the gradients of the parts; a part without one counts as zeros."""
    shape, count = node.extra
    parts = all_gradients(grads, count)
    present = next(part for part in parts if part is not None)
    zeros = [t.new(present.shape, present.dtype) for part in parts if part is None]
    out = t.new(shape, present.dtype)
    out.heads_first = len(shape) == 4
    if t.work is not None:
        t.work.named(out, "strided")
    del zeros
    return (out,)


def chunk_last(t: Tape, x: Tensor, count: int = 2) -> list[Tensor]:
    """`x.chunk(count, dim=-1)`: views."""
    shape = (*x.shape[:-1], x.shape[-1] // count)
    parts = [Tensor(x.storage, shape, x.numel // count, x.dtype) for _ in range(count)]
    for part in parts:
        part.view = True
    t.record_all(parts, _chunk_backward, (x,), (), (x.shape, count))
    return parts


def _split_backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    """Join the gradients of the parts."""
    present = grads[0] if isinstance(grads, list) else grads
    assert present is not None
    return (t.new(node.extra, present.dtype),)


def split_rows(t: Tape, x: Tensor, count: int) -> list[Tensor]:
    """`x.chunk(count, dim=1)`: views; with few tokens there are fewer parts."""
    batch, tokens = x.shape[:2]
    each = -(-tokens // count)
    parts = []
    for start in range(0, tokens, each):
        length = min(each, tokens - start)
        parts.append(Tensor(x.storage, (batch, length, *x.shape[2:]), x.numel // tokens * length, x.dtype))
        parts[-1].view = True
    t.record_all(parts, _split_backward, (x,), (), x.shape)
    return parts


def _repeat_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.new(node.extra, grad.dtype)
    out.heads_first = True
    return (out,)


def repeat_heads(t: Tape, x: Tensor, groups: int) -> Tensor:
    """`repeat_kv`: a copy in which each key or value head is repeated for every query head of its group."""
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
    return t.record(out, _repeat_backward, (x,), (), x.shape)


def interleaved_heads(t: Tape, x: Tensor, groups: int) -> Tensor:
    """`x.repeat_interleave(groups, dim=1)`: always a copy."""
    if groups == 1:
        return x
    batch, heads, tokens, width = x.shape
    out = t.new((batch, heads * groups, tokens, width), x.dtype)
    out.heads_first = True
    return t.record(out, _repeat_backward, (x,), (), x.shape)


def copied_heads(t: Tape, x: Tensor, groups: int) -> Tensor:
    """Repeat heads in token order: a copy, and a gradient in the same order."""
    if groups == 1:
        return x
    batch, heads, tokens, width = x.shape
    return t.record(t.new((batch, heads * groups, tokens, width), x.dtype), gradient_of_shape, (x,), (), x.shape)


# small kernels that sort indices before rows are accumulated
_SORTING = 8


def _taken_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.new(*node.extra)
    if t.work is not None:
        t.work.stream(0, 0, count=_SORTING)
        t.work.stream(grad.numel * grad.dtype.size, grad.numel * grad.dtype.size, "scatter")
    return (out,)


def rows_taken(t: Tape, x: Tensor, indices: Tensor) -> Tensor:
    """`x.reshape(-1, heads, width)[indices]` for (batch, heads, tokens, width), whose tokens may be first in memory.

    The result is one row. Its gradient is added into zeros of x's shape.
    """
    if x.heads_first and x.shape[1] > 1:
        x = contiguous(t, x)
    return t.record(
        t.new((1, x.shape[1], indices.numel, x.shape[3]), x.dtype),
        _taken_backward,
        (x,),
        (indices,),
        (x.shape, x.dtype),
    )


def rows_put_back(t: Tape, x: Tensor, indices: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Write the rows into zeros of this shape; their gradient is gathered."""
    return t.record(t.new(shape, x.dtype), gradient_as, (x,), (indices,), (x.shape, x.dtype))
