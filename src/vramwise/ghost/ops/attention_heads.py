"""Key and value heads repeated for the query heads of their group."""

from __future__ import annotations

from vramwise.ghost.ops.shape import alias
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


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
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_repeat_backward, (x,), ())
        out.node.extra = x.shape
    return out


def interleaved_heads(t: Tape, x: Tensor, groups: int) -> Tensor:
    """`x.repeat_interleave(groups, dim=1)`: always a copy."""
    if groups == 1:
        return x
    batch, heads, tokens, width = x.shape
    out = t.new((batch, heads * groups, tokens, width), x.dtype)
    out.heads_first = True
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_repeat_backward, (x,), ())
        out.node.extra = x.shape
    return out


def _copied_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(node.extra, grad.dtype),)


def copied_heads(t: Tape, x: Tensor, groups: int) -> Tensor:
    """Repeat heads in token order: a copy, and a gradient in the same order."""
    if groups == 1:
        return x
    batch, heads, tokens, width = x.shape
    out = t.new((batch, heads * groups, tokens, width), x.dtype)
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_copied_backward, (x,), ())
        out.node.extra = x.shape
    return out
