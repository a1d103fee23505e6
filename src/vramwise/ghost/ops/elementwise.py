"""Elementwise ops: one result each, with what they save and what their backward creates.

Formulas follow torch's derivatives.yaml (2.11). Its generated code computes the gradients of an op's inputs in the
alphabetical order of their names (`other` before `self`), which is why right operands come first below. The engine sums
over broadcast dimensions, see `reduce.sum_results`.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BOOL, FP32, DType, promote
from vramwise.ghost.tape import Backward, Grads, Node, Tape, Tensor


def _shape_of(a: Tensor, b: Tensor) -> tuple[int, ...]:
    if a.shape == b.shape:
        return a.shape
    if len(a.shape) < len(b.shape):
        a, b = b, a
    padded = (1,) * (len(a.shape) - len(b.shape)) + b.shape
    return tuple([x if x >= y else y for x, y in zip(a.shape, padded, strict=True)])


def _result(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    out = t.new(_shape_of(a, b), promote(a.dtype, b.dtype))
    # memory order follows the first operand that has the full shape
    out.heads_first = a.heads_first if a.numel == out.numel else b.heads_first
    if t.work is not None:
        t.work.reads(out, a, b)
        if a.shape != b.shape:
            t.work.named(out, "strided")
    return out


def _mul_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    left, right = node.saved
    edges = node.edges
    to_right = None if edges[1] is None or left is None else _result(t, grad, left)
    to_left = None if edges[0] is None or right is None else _result(t, grad, right)
    return to_left, to_right


def _recorded(
    t: Tape, out: Tensor, backward: Backward, a: Tensor, b: Tensor, saved: tuple[Tensor | None, ...] = ()
) -> Tensor:
    """Return the result of an op on two operands; if they differ, the engine sums and casts the gradients to them."""
    if t.record(out, backward, (a, b), saved).node is not None and (a.shape != b.shape or a.dtype is not b.dtype):
        assert out.node is not None
        out.node.expected = ((a.shape, a.dtype), (b.shape, b.dtype))
    return out


def mul(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """`a * b`: each operand is saved if the other needs a gradient."""
    saved = (b if a.node is not None else None, a if b.node is not None else None)
    return _recorded(t, _result(t, a, b), _mul_backward, a, b, saved)


def same_gradients(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return the gradient itself for both inputs that want one."""
    edges = node.edges
    return None if edges[0] is None else grad, None if edges[1] is None else grad


def add(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """`a + b`: nothing is saved; the gradient is passed to both unchanged."""
    return _recorded(t, _result(t, a, b), same_gradients, a, b)


def add_in_place(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """`a += b`: the same storage; the gradient is passed to both unchanged."""
    if t.work is not None:
        t.work.over(a)
    if not t.grad_enabled or (a.node is None and b.node is None):
        return a
    return _recorded(t, without_node(a), same_gradients, a, b)


def _subtract_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    edges = node.edges
    to_right = None if edges[1] is None else t.like(grad)
    return None if edges[0] is None else grad, to_right


def subtract(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """`a - b`: nothing is saved; the right operand's gradient is negated."""
    return _recorded(t, _result(t, a, b), _subtract_backward, a, b)


def same_gradient(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return the gradient itself."""
    return (grad,)


def all_gradients(grads: Tensor | list[Tensor | None], count: int) -> list[Tensor | None]:
    """Return the gradients of an op's results as a list of so many; None for those that have none."""
    found = list(grads) if isinstance(grads, list) else [grads]
    return found + [None] * (count - len(found))


def like_gradient(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return one new gradient, like the incoming one."""
    return (t.like(grad),)


def gradient_of_shape(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return one new gradient of the shape that the node keeps, in the incoming one's type."""
    return (t.new(node.extra, grad.dtype),)


def gradient_as(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return one new gradient of the shape and type that the node keeps."""
    return (t.new(*node.extra),)


def add_scalar(t: Tape, a: Tensor) -> Tensor:
    """`a + 1e-6`"""
    return t.record(t.like(a), same_gradient, (a,))


def _div_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return _result(t, grad, grad), None


def divide(t: Tape, a: Tensor, b: Tensor) -> Tensor:
    """`a / b` for a divisor without a gradient: saves the divisor."""
    return _recorded(t, _result(t, a, b), _div_backward, a, b, (b,))


def scale(t: Tape, a: Tensor) -> Tensor:
    """`a * 0.5`, `a / 2`, `-a`: nothing saved, one new gradient."""
    return t.record(t.like(a), like_gradient, (a,))


def scale_in_place(t: Tape, a: Tensor) -> Tensor:
    """`a *= 2`: the same storage, one new gradient in backward."""
    if t.work is not None:
        t.work.over(a, sources=0)
    if t.grad_enabled and a.node is not None:
        out = without_node(a)
        out.node = t.node(like_gradient, (a,), ())
        return out
    return a


def _cast_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.like(grad, node.extra),)


def cast(t: Tape, x: Tensor, dtype: DType) -> Tensor:
    """`x.to(dtype)`: returns x itself if it already has that dtype."""
    if x.dtype is dtype:
        return x
    return t.record(t.like(x, dtype), _cast_backward, (x,), (), x.dtype)


def to_float(t: Tape, x: Tensor) -> Tensor:
    """`x.float()`"""
    return cast(t, x, FP32)


def _square_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    powered = t.like(grad)
    doubled = t.like(grad)
    out = t.like(grad)
    del doubled
    del powered
    return (out,)


def square(t: Tape, x: Tensor) -> Tensor:
    """`x.pow(2)`: saves x; its backward creates x¹, 2·x¹ and the product with the gradient."""
    return t.record(t.like(x), _square_backward, (x,), (x,))


def _rsqrt_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    halved = t.like(grad)
    cubed = t.like(grad)
    out = t.like(grad)
    del cubed
    del halved
    return (out,)


def rsqrt(t: Tape, x: Tensor) -> Tensor:
    """`torch.rsqrt(x)`: saves its result."""
    out = t.like(x)
    if t.grad_enabled and x.node is not None:
        node = t.node(_rsqrt_backward, (x,), (without_node(out),))
        out.node = node
    return out


def without_node(x: Tensor) -> Tensor:
    """Return a detached tensor with the same storage: how an op saves its own result without a reference cycle."""
    twin = Tensor(x.storage, x.shape, x.numel, x.dtype)
    twin.heads_first = x.heads_first
    return twin


def _activation_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.like(grad)
    if t.work is not None:
        t.work.reads(out, grad, grad)
    return (out,)


def activation(t: Tape, x: Tensor) -> Tensor:
    """silu, gelu and the like as one kernel: saves the input, one new gradient."""
    return t.record(t.like(x), _activation_backward, (x,), (x,))


def result_activation(t: Tape, x: Tensor) -> Tensor:
    """tanh, sigmoid, relu: saves the result."""
    out = t.like(x)
    return t.record(out, _activation_backward, (x,), (without_node(out),))


def dropout(t: Tape, x: Tensor, rate: float) -> Tensor:
    """Fused dropout: a result and a mask of bytes; only the mask is saved. Nothing at rate 0 or outside training."""
    if rate == 0.0 or not t.training or t.without_dropout:
        return x
    mask = t.like(x, BOOL)
    out = t.like(x)
    if t.work is not None:
        t.work.no_kernel(mask)  # one kernel computes both
    return t.record(out, like_gradient, (x,), (mask,))
