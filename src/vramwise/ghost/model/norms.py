"""Normalisation layers. RMS norms are written out in elementwise ops, in fp32, as transformers does; LayerNorm is one
kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.ops.elementwise import add_scalar, cast, mul, rsqrt, square, subtract, to_float
from vramwise.ghost.ops.reduce import mean_last
from vramwise.ghost.ops.row_kernels import layer_norm
from vramwise.ghost.tape import Parameter, Tape, Tensor


def unchanged(t: Tape, x: Tensor) -> Tensor:
    """Stand for a norm that a model does not have."""
    return x


class Norm(Protocol):
    """A layer that keeps its input's shape."""

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        ...


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Llama's: fp32 inside, the weight applied in the input's type."""

    weight: Parameter

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        outer = x.dtype
        x = to_float(t, x)
        variance = mean_last(t, square(t, x))
        x = mul(t, x, rsqrt(t, add_scalar(t, variance)))
        return mul(t, self.weight, cast(t, x, outer))


@dataclass(frozen=True, slots=True)
class WideRmsNorm:
    """OLMo 2's: as Llama's, but the weight is applied in fp32, before the cast back."""

    weight: Parameter

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        outer = x.dtype
        x = to_float(t, x)
        variance = mean_last(t, square(t, x))
        x = mul(t, x, rsqrt(t, add_scalar(t, variance)))
        return cast(t, mul(t, self.weight, x), outer)


class UnscaledRmsNorm:
    """Gemma 3n's and 4's norm of values and of a router's input: in fp32, without a weight."""

    __slots__ = ()

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        outer = x.dtype
        x = to_float(t, x)
        variance = mean_last(t, square(t, x))
        return cast(t, mul(t, x, rsqrt(t, add_scalar(t, variance))), outer)


@dataclass(frozen=True, slots=True)
class GemmaNorm:
    """Gemma's: everything in fp32, the weight as an offset from one."""

    weight: Parameter

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        wide = to_float(t, x)
        output = mul(t, wide, rsqrt(t, add_scalar(t, mean_last(t, square(t, wide)))))
        del wide
        output = mul(t, output, add_scalar(t, to_float(t, self.weight)))
        return cast(t, output, x.dtype)


@dataclass(frozen=True, slots=True)
class CohereNorm:
    """Cohere's LayerNorm without bias, written out in fp32."""

    weight: Parameter

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        outer = x.dtype
        x = to_float(t, x)
        mean = mean_last(t, x)
        variance = mean_last(t, square(t, subtract(t, x, mean)))
        x = mul(t, subtract(t, x, mean), rsqrt(t, add_scalar(t, variance)))
        x = mul(t, to_float(t, self.weight), x)
        out = cast(t, x, outer)
        del x, mean, variance
        return out


class LayerNorm:
    """`nn.LayerNorm`, with or without weight and bias; under autocast it computes and returns fp32."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Parameter | None, bias: Parameter | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if t.autocast is None:
            return layer_norm(t, x, self.weight, self.bias)
        bias = None if self.bias is None else cast(t, self.bias, FP32)
        weight = None if self.weight is None else cast(t, self.weight, FP32)
        return layer_norm(t, to_float(t, x), weight, bias)
