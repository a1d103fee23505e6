"""Linear layers, called as `layer(t, x)`: plain, quantised (as bitsandbytes writes them), with PEFT's LoRA, DoRA or
OFT.

OFT rotates the input, block by block of its columns, before the base layer sees it. After peft 0.18
(`OFTRotationModule`, Cayley's transform by a Neumann series): the input is cast to the rotation's fp32, and under
autocast back to half precision for the product, whose result is copied into the order of the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from vramwise.ghost.dtypes import DType
from vramwise.ghost.ops.elementwise import add, add_scalar, cast, divide, dropout, mul, scale, subtract, without_node
from vramwise.ghost.ops.float8 import float8_linear
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.matmul import autocast_input, linear
from vramwise.ghost.ops.quantised import TRAINED_OUTLIERS, linear_4bit, linear_8bit, outlier_share
from vramwise.ghost.ops.shape import cloned, transpose_last
from vramwise.ghost.tape import Parameter, Tape, Tensor


class Projection(Protocol):
    """Anything that maps (…, in) to (…, out)."""

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
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
        """Return the layer's output."""
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
        """Return the layer's output."""
        return add(t, linear(t, x, self.weight), self.bias)


class Conv1d:
    """GPT-2's linear layer: the weight is stored as (in, out)."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Parameter, bias: Parameter | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return linear(t, x, self.weight, self.bias, transposed=True)


@dataclass(frozen=True, slots=True)
class LoraLinear:
    """PEFT's LoRA around a base layer: result + B(A(dropout(x))) · scaling, the branch in the adapter's own type."""

    base: Projection
    down: Parameter
    up: Parameter
    rate: float

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if t.work is not None:
            t.work.called(LORA_CALLS)
        result = self.base(t, x)
        outer = result.dtype
        x = cast(t, x, self.down.dtype)
        result = add(t, result, scale(t, linear(t, linear(t, dropout(t, x, self.rate), self.down), self.up)))
        return cast(t, result, outer)


@dataclass(frozen=True, slots=True)
class Dora:
    """PEFT's weight-decomposed branch: magnitudes, and the norms of the merged weight, computed anew at every call.

    The LoRA weight is made by sending an identity matrix through the branch; a square fp32 matrix of the input's width.
    """

    shape: tuple[int, ...]
    down: Parameter
    up: Parameter
    magnitude: Parameter
    bias: Parameter | None  # the base layer's

    def __call__(self, t: Tape, x: Tensor, weight_of: WeightOf, base: Tensor | None) -> Tensor:
        """Return what is added to the base layer's result."""
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


@dataclass(frozen=True, slots=True)
class DoraLinear:
    """A base layer with a DoRA branch. Dropout makes the branch recompute the base product from the dropped input."""

    base: Projection
    weight: WeightOf
    dora: Dora
    rate: float
    _: KW_ONLY
    # around a quantised layer: the result is cloned, and under autocast nothing is cast before or after
    quantised: bool

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
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


@dataclass(frozen=True, slots=True)
class Linear4bit:
    """A frozen 4-bit weight."""

    shape: tuple[int, int]
    bias: Parameter | None
    compute: DType
    _: KW_ONLY
    nested: bool = True

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return linear_4bit(t, x, self.shape, self.bias, self.compute, nested=self.nested)


@dataclass(frozen=True, slots=True)
class Linear8bit:
    """A frozen 8-bit weight.

    `after_gate`: the model's width, where its input is a gated product: that has outliers. Of trained weights a handful
    of columns; of random ones as many as their initial scale makes. `keeps`: the graph holds the input.
    """

    shape: tuple[int, int]
    after_gate: int | None = None
    _: KW_ONLY
    keeps: bool = True
    trained: bool = True

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        outliers = self._outliers(x.numel // x.shape[-1], x.shape[-1])
        return linear_8bit(t, x, self.shape, outliers, keeps=self.keeps)

    def _outliers(self, rows: int, width: int) -> int:
        if not self.after_gate:
            return 0
        return min(TRAINED_OUTLIERS, width) if self.trained else round(outlier_share(self.after_gate, rows) * width)


@dataclass(frozen=True, slots=True)
class QuantisedLoraLinear:
    """PEFT's LoRA around a quantised layer: under autocast the branch takes the input as it is; 4-bit results are
    cloned."""

    base: Projection
    down: Parameter
    up: Parameter
    rate: float
    _: KW_ONLY
    clones: bool

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if t.work is not None:
            t.work.called(LORA_CALLS)
        result = self.base(t, x)
        if self.clones:
            result = cloned(t, result)
        if t.autocast is None:
            x = cast(t, x, self.down.dtype)
        output = scale(t, linear(t, linear(t, dropout(t, x, self.rate), self.down), self.up))
        if t.autocast is None:
            output = cast(t, output, result.dtype)
        result = add(t, result, output)
        return result  # noqa: RET504 - frees what it replaces before the branch


# products of the series, each kept for backward
_POWERS = 3


def rotation_shape(columns: int, block: int) -> tuple[int, int]:
    """Return what is trained for so many columns: the upper triangle of each block's skew-symmetric matrix."""
    return columns // block, block * (block - 1) // 2


@dataclass(frozen=True, slots=True)
class OftLinear:
    """`block`: columns of a block. `quantised`: the result is in the type of the input, without a way through fp32."""

    base: Projection
    rotation: Parameter
    block: int
    _: KW_ONLY
    quantised: bool

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        outer = x.dtype
        x = self._rotated(t, cast(t, x, self.rotation.dtype))
        return self.base(t, cast(t, x, outer))

    def _rotated(self, t: Tape, x: Tensor) -> Tensor:
        """Return the rotated input; what it was made of goes when it is there."""
        turned = autocast_input(t, self._matrices(t))
        low = autocast_input(t, x)
        product = general(t, (low, turned), low.shape, low.dtype, saved=(low, turned))
        del low, turned
        copied = general(t, (product,), product.shape, product.dtype)
        out = copied if self.quantised else cast(t, copied, self.rotation.dtype)
        del product, copied
        return out

    def _matrices(self, t: Tape) -> Tensor:
        """Return the orthogonal matrix of each block."""
        blocks = self.rotation.shape[0]
        shape = (blocks, self.block, self.block)
        skew = general(t, (self.rotation,), shape, self.rotation.dtype)
        low = t.autocast or self.rotation.dtype
        return general(t, (skew,), shape, self.rotation.dtype, made=[(shape, low)] * _POWERS)
