"""Linear layers: plain, with a LoRA branch, quantised. All are called as `layer(t, x)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from vramwise.ghost.ops.elementwise import add, add_scalar, cast, divide, dropout, mul, scale, subtract, without_node
from vramwise.ghost.ops.float8 import float8_linear
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.shape import cloned, transpose_last
from vramwise.ghost.tape import Parameter, Tape, Tensor


class Projection(Protocol):
    """Anything that maps (…, in) to (…, out)."""

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        ...


# functions of modules that PEFT's layers go through besides the base layer's: dropout, both factors, their own lookups
LORA_CALLS = 4

# gives a layer's weight in a type to compute with: itself, or dequantised for the call
WeightOf = Callable[[Tape], Tensor]


class Linear:
    """A weight and perhaps a bias."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Parameter, bias: Parameter | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        return linear(t, x, self.weight, self.bias)


class Float8Linear:
    """torchao's linear layer: it multiplies in fp8, and adds its bias in an operation of its own."""

    __slots__ = ("bias", "scaling", "weight")

    def __init__(self, weight: Parameter, bias: Parameter | None, scaling: str) -> None:
        self.weight = weight
        self.bias = bias
        self.scaling = scaling

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        out = float8_linear(t, x, self.weight, self.scaling)
        return out if self.bias is None else add(t, out, cast(t, self.bias, out.dtype))


class AddedBias:
    """Falcon's linear layer: the bias is added to the product in an operation of its own."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Parameter, bias: Parameter) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        return add(t, linear(t, x, self.weight), self.bias)


class Conv1d:
    """GPT-2's linear layer: the weight is stored as (in, out)."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Parameter, bias: Parameter | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        return linear(t, x, self.weight, self.bias, transposed=True)


class LoraLinear:
    """PEFT's LoRA around a base layer: result + B(A(dropout(x))) · scaling, the branch in the adapter's own type."""

    __slots__ = ("base", "down", "rate", "up")

    def __init__(self, base: Projection, down: Parameter, up: Parameter, rate: float) -> None:
        self.base = base
        self.down = down
        self.up = up
        self.rate = rate

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        if t.work is not None:
            t.work.called(LORA_CALLS)
        result = self.base(t, x)
        outer = result.dtype
        x = cast(t, x, self.down.dtype)
        result = add(t, result, scale(t, linear(t, linear(t, dropout(t, x, self.rate), self.down), self.up)))
        return cast(t, result, outer)


class Dora:
    """PEFT's weight-decomposed branch: magnitudes, and the norms of the merged weight, computed anew at every call.

    The LoRA weight is made by sending an identity matrix through the branch; a square fp32 matrix of the input's width.
    """

    __slots__ = ("bias", "down", "magnitude", "shape", "up")

    def __init__(
        self, shape: tuple[int, ...], down: Parameter, up: Parameter, magnitude: Parameter, bias: Parameter | None
    ) -> None:
        self.shape = shape
        self.bias = bias  # the base layer's
        self.down = down
        self.up = up
        self.magnitude = magnitude

    def __call__(self, t: Tape, x: Tensor, weight_of: WeightOf, base: Tensor | None) -> Tensor:
        """What is added to the base layer's result."""
        lora_weight = self._merged(t)
        lora_weight = cast(t, lora_weight, x.dtype)
        weight = weight_of(t)
        weight = cast(t, weight, x.dtype)
        norm = self._norm(t, weight, without_node(lora_weight))
        factor = divide(t, self.magnitude, norm)
        branch = linear(t, linear(t, x, self.down), self.up)
        if base is None:
            base = linear(t, x, weight)
        elif self.bias is not None:
            base = subtract(t, base, self.bias)
        out = add(t, mul(t, add_scalar(t, factor), base), scale(t, mul(t, factor, branch)))
        del base, lora_weight, weight, norm, factor, branch
        return out

    def _merged(self, t: Tape) -> Tensor:
        eye = t.new((self.shape[1], self.shape[1]), self.down.dtype)
        return transpose_last(t, linear(t, linear(t, eye, self.down), self.up))

    def _norm(self, t: Tape, weight: Tensor, lora_weight: Tensor) -> Tensor:
        weight = add(t, weight, scale(t, lora_weight))
        return t.new((self.shape[0],), weight.dtype)


class DoraLinear:
    """A base layer with a DoRA branch. Dropout makes the branch recompute the base product from the dropped input."""

    __slots__ = ("base", "dora", "quantised", "rate", "weight")

    def __init__(self, base: Projection, weight: WeightOf, dora: Dora, rate: float, *, quantised: bool) -> None:
        self.base = base
        # around a quantised layer: the result is cloned, and under autocast nothing is cast before or after
        self.quantised = quantised
        self.weight = weight
        self.dora = dora
        self.rate = rate

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        result = self.base(t, x)
        outer = result.dtype
        if self.quantised:
            result = cloned(t, result)
        casts = not self.quantised or t.autocast is None
        if casts:
            x = cast(t, x, self.dora.down.dtype)
        result = self._variant(t, x, result)
        if casts:
            result = cast(t, result, outer)
        return result

    def _variant(self, t: Tape, x: Tensor, result: Tensor) -> Tensor:
        base: Tensor | None = result
        if self.rate > 0 and t.training:
            x = dropout(t, x, self.rate)
            base = None
        return add(t, result, self.dora(t, x, self.weight, base))
