"""Feed-forward layers of one expert's kind: gated, gated with fused weights, plain."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.elementwise import (
    activation,
    add,
    add_scalar,
    cast,
    dropout,
    mul,
    result_activation,
    scale,
    square,
    to_float,
)
from vramwise.ghost.ops.shape import chunk_last
from vramwise.ghost.tape import Tape, Tensor

Activation = Callable[[Tape, Tensor], Tensor]


def gelu_new(t: Tape, x: Tensor) -> Tensor:
    """GELU written out with tanh and a cube (`gelu_new`, `gelu_fast`): a dozen tensors, in fp32 under autocast
    (pow)."""
    half = scale(t, x)
    return mul(t, half, add_scalar(t, result_activation(t, scale(t, add(t, x, scale(t, _cube(t, x)))))))


def _cube(t: Tape, x: Tensor) -> Tensor:
    return square(t, x if t.autocast is None else to_float(t, x))


def activation_named(name: str) -> Activation:
    """Return the activation of a config's name."""
    if name == "relu2":
        return relu_squared
    return gelu_new if name in ("gelu_new", "gelu_fast", "gelu_accurate") else activation


def relu_squared(t: Tape, x: Tensor) -> Tensor:
    """`relu(x) ** 2`: autocast runs powers in fp32."""
    x = result_activation(t, x)
    return square(t, x if t.autocast is None else cast(t, x, FP32))


def called(t: Tape, layer: Projection, x: Tensor) -> Tensor:
    """A module's call: it holds its argument until the layer is done, also where that rebinds it, or is cut short."""
    return layer(t, x)


class GatedMlp:
    """down(act(gate(x)) * up(x))"""

    __slots__ = ("down", "gate", "up")

    def __init__(self, gate: Projection, up: Projection, down: Projection) -> None:
        self.gate = gate
        self.up = up
        self.down = down

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return called(t, self.down, mul(t, activation(t, self.gate(t, x)), self.up(t, x)))


class FusedGatedMlp:
    """One projection for gate and up, cut in two (phi-3, GLM)."""

    __slots__ = ("down", "gate_up")

    def __init__(self, gate_up: Projection, down: Projection) -> None:
        self.gate_up = gate_up
        self.down = down

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        up = self.gate_up(t, x)
        gate, up = chunk_last(t, up)
        up = mul(t, up, activation(t, gate))
        return self.down(t, up)


class DroppedMlp:
    """A feed-forward layer whose last step is dropout (StarCoder 2, GPT-2)."""

    __slots__ = ("mlp", "rate")

    def __init__(self, mlp: Callable[[Tape, Tensor], Tensor], rate: float) -> None:
        self.mlp = mlp
        self.rate = rate

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return dropout(t, self.mlp(t, x), self.rate)


class PlainMlp:
    """down(act(up(x)))"""

    __slots__ = ("act", "down", "up")

    def __init__(self, up: Projection, down: Projection, act: Activation) -> None:
        self.up = up
        self.down = down
        self.act = act

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        x = self.up(t, x)
        x = self.act(t, x)
        x = self.down(t, x)
        return x  # noqa: RET504 - reassigning is what frees the wider tensors
