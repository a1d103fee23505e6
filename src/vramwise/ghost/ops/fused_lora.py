"""The parts of fused LoRA kernels: base product and low-rank branch in one autograd function, written in place.

Follows Unsloth's scheme, as trainers ship it (`kernels/lora.py`): forward adds the branch to the base product, and
keeps the input and copies of the factors in its dtype; 4-bit weights are dequantised for each product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ref

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.ops.quantised import scales
from vramwise.ghost.ops.reduce import sum_to_shape
from vramwise.ghost.tape import LEAF, Backward, Grads, Node, Parameter, Tape, Tensor

if TYPE_CHECKING:
    from vramwise.ghost.work import Work


@dataclass(slots=True, kw_only=True)
class Fused:
    """One projection of a fused kernel. `weight` is None if it is stored in 4 bits; `compute` is its dequantised dtype.

    `wide_grads`: the gradients of fp32 factors are created in fp32, but transposed, so that the first one of a step is
    copied before a parameter takes it. Otherwise they are created in the input's dtype, in place, and autograd casts
    them.
    """

    shape: tuple[int, int]
    weight: Parameter | None
    compute: DType
    down: Parameter
    up: Parameter
    magnitude: Parameter | None
    biased: bool
    wide_grads: bool
    # DoRA: the norms of the merged weight, computed once
    norms: Tensor | None = None

    @property
    def rank(self) -> int:
        """The rank of the branch."""
        return self.down.shape[0]

    @property
    def factors(self) -> tuple[Parameter, ...]:
        """Its trained parameters, in the order of the kernel's arguments."""
        return (self.down, self.up) if self.magnitude is None else (self.down, self.up, self.magnitude)


def rows_of(x: Tensor) -> int:
    """Return the number of tokens in a batch."""
    return x.numel // x.shape[-1]


def low(t: Tape, parameter: Parameter, dtype: DType) -> Tensor:
    """`parameter.to(dtype)` without recording."""
    return parameter if parameter.dtype is dtype else t.like(parameter, dtype)


def copies(t: Tape, parts: tuple[Fused, ...], dtype: DType) -> list[Tensor]:
    """Return both factors of each part, in the dtype that backward computes in."""
    return [low(t, factor, dtype) for part in parts for factor in (part.down, part.up)]


def opened(t: Tape, part: Fused) -> Tensor:
    """Return the base weight: itself, or dequantised, which temporarily needs its scales in fp32."""
    if part.weight is not None:
        return part.weight
    weight = t.new(part.shape, part.compute)
    absmax = t.new((scales(weight.numel),), FP32)
    if t.work is not None:
        t.work.opened(weight, absmax, bits=4)
    del absmax
    return weight


def base_product(t: Tape, x: Tensor, part: Fused) -> Tensor:
    """`x @ W.T`"""
    weight = opened(t, part)
    out = t.new((*x.shape[:-1], part.shape[0]), x.dtype)
    if t.work is not None:
        t.work.product(out, rows_of(x), *part.shape, dtype=x.dtype)
    t.workspace()
    del weight
    return out


def product(t: Tape, x: Tensor, part: Fused) -> Tensor:
    """`x @ W.T` with the branch added in place, and a bias."""
    out = base_product(t, x, part)
    down = low(t, part.down, x.dtype)
    up = low(t, part.up, x.dtype)
    between = t.new((rows_of(x), part.rank), x.dtype)
    if t.work is not None:
        t.work.product(between, rows_of(x), part.rank, part.shape[1], dtype=x.dtype)
        t.work.product(None, rows_of(x), part.shape[0], part.rank, dtype=x.dtype)
        if part.biased:
            t.work.over(out, sources=0)
    del between
    del down, up
    return out


def branch(t: Tape, x: Tensor, part: Fused) -> Tensor:
    """`s * x @ A.T @ B.T`: the input is scaled first."""
    down = low(t, part.down, x.dtype)
    up = low(t, part.up, x.dtype)
    scaled = t.like(x)
    between = t.new((rows_of(x), part.rank), x.dtype)
    del scaled
    out = t.new((*x.shape[:-1], part.shape[0]), x.dtype)
    if t.work is not None:
        t.work.product(between, rows_of(x), part.rank, part.shape[1], dtype=x.dtype)
        t.work.product(out, rows_of(x), part.shape[0], part.rank, dtype=x.dtype)
    del between
    del down, up
    return out


def magnitude_scale(t: Tape, part: Fused, dtype: DType) -> Tensor:
    """Return magnitudes over norms.

    The norms come from a kernel that merges nothing, and are reused in later steps: the fused optimizer does not change
    the factors' versions, which the real kernel compares.
    """
    assert part.magnitude is not None
    if part.norms is not None:
        magnitudes = low(t, part.magnitude, dtype)
        out = t.like(part.norms)
        del magnitudes
        return out
    weight = opened(t, part)
    out = t.new((part.shape[0],), dtype)
    up = low(t, part.up, dtype)
    down = low(t, part.down, dtype)
    del up, down
    del weight
    magnitudes = low(t, part.magnitude, dtype)
    norms = t.like(out)
    del magnitudes
    part.norms = norms
    return out


def scaled_sum(t: Tape, base: Tensor, lora: Tensor, part: Fused) -> Tensor:
    """`scale * (base + lora)`, with the bias as a separate op."""
    both = t.like(base)
    out = t.like(both)
    del both
    return with_bias(t, out, part)


def with_bias(t: Tape, x: Tensor, part: Fused) -> Tensor:
    """`x + bias`, if there is one."""
    return t.like(x) if part.biased else x


def to_input(t: Tape, part: Fused, like: Tensor) -> Tensor:
    """`grad @ W`, with the branch's part added in place: the gradient of a projection's input."""
    weight = opened(t, part)
    out = t.like(like)
    if t.work is not None:
        into_input(t.work, part, rows_of(like), like.dtype, out)
    t.workspace()
    del weight
    out.view = True  # it is passed on as a view
    return out


def into_input(work: Work, part: Fused, rows: int, dtype: DType, out: Tensor | None = None) -> None:
    """Count `grad @ W` and the branch's part added to it; without `out`, both add to an existing tensor."""
    work.product(out, rows, part.shape[1], part.shape[0], dtype=dtype)
    work.product(None, rows, part.shape[1], part.rank, dtype=dtype)


def factor_grads(t: Tape, part: Fused, rows: int, dtype: DType) -> tuple[Tensor, Tensor, Tensor]:
    """Return `grad @ B`, which the caller keeps for the input's gradient, and the gradients of A and B."""
    between = t.new((rows, part.rank), dtype)
    t.workspace()
    if part.wide_grads:
        to_down = t.new(part.down.shape, part.down.dtype)
        turned = t.new((part.rank, rows), dtype)
        to_up = t.new(part.up.shape, part.up.dtype)
    else:
        to_down = t.new(part.down.shape, dtype)
        to_up = t.new(part.up.shape, dtype)
        turned = t.new((part.rank, rows), dtype)
    if t.work is not None:
        t.work.product(between, rows, part.rank, part.shape[0], dtype=dtype)
        t.work.product(turned, part.rank, rows, part.shape[1], dtype=dtype)
        t.work.product(to_down, part.rank, part.shape[1], rows, dtype=dtype)
        t.work.product(to_up, part.shape[0], part.rank, rows, dtype=dtype)
    del turned
    return between, to_down, to_up


def magnitude_grad(t: Tape, grad: Tensor, combined: Tensor, *, autocast: bool) -> Tensor:
    """`(grad * combined).sum(0) * scale / magnitude`: autocast sums into fp32, the magnitude's dtype."""
    multiplied = t.like(combined)
    summed = sum_to_shape(t, multiplied, (combined.shape[-1],), dtype=FP32 if autocast else grad.dtype)
    del multiplied
    scaled = t.like(summed)
    del summed
    out = t.like(scaled, FP32)
    del scaled
    return out


def fused_node(
    t: Tape, backward: Backward, inputs: tuple[Tensor, ...], parts: tuple[Fused, ...], saved: tuple[Tensor | None, ...]
) -> Node:
    """Return the function's node, with edges to its inputs and trained parameters."""
    factors = [factor for part in parts for factor in part.factors]
    turned = parts[0].wide_grads
    if t.work is not None:
        t.work.function()
        backward = t.work.written_in_python(backward)
    node = t.node(backward, (*inputs, *factors), saved)
    node.expected = tuple([(item.shape, item.dtype) for item in (*inputs, *factors)])
    for position, factor in enumerate(factors, len(inputs)):
        if turned and len(factor.shape) == 2 and factor.node is not None:
            node.edges[position] = (_turning(t, factor), 0)
    return node


def _turning(t: Tape, parameter: Parameter) -> Node:
    """Return a node between the kernel and a parameter's own node.

    It runs as soon as all of the kernel's gradients are passed on.
    """
    assert parameter.node is not None
    node = Node(LEAF - 1, _turned)
    node.tag = t.tag
    node.extra = ref(parameter)
    node.edges = [(parameter.node, 0)]
    return node


def _turned(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Copy a transposed gradient into the parameter's memory order; later ones are added to the first."""
    parameter = node.extra()
    if parameter is None or parameter.grad is not None or parameter.local != parameter.numel:
        return (grad,)
    return (t.like(grad),)
