"""PEFT's OFT around a base layer: the input is rotated, block by block of its columns, before the base layer sees it.

After peft 0.18 (`OFTRotationModule`, Cayley's transform by a Neumann series): the input is cast to the rotation's fp32,
and under autocast back to half precision for the product, whose result is copied into the order of the input.
"""

from __future__ import annotations

from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.elementwise import cast
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Parameter, Tape, Tensor

# products of the series, each kept for backward
_POWERS = 3


def rotation_shape(columns: int, block: int) -> tuple[int, int]:
    """What is trained for so many columns: the upper triangle of each block's skew-symmetric matrix."""
    return columns // block, block * (block - 1) // 2


class OftLinear:
    """`block`: columns of a block. `quantised`: the result is in the type of the input, without a way through fp32."""

    __slots__ = ("base", "block", "quantised", "rotation")

    def __init__(self, base: Projection, rotation: Parameter, block: int, *, quantised: bool) -> None:
        self.base = base
        self.rotation = rotation
        self.block = block
        self.quantised = quantised

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        outer = x.dtype
        x = self._rotated(t, cast(t, x, self.rotation.dtype))
        return self.base(t, cast(t, x, outer))

    def _rotated(self, t: Tape, x: Tensor) -> Tensor:
        """The rotated input; what it was made of goes when it is there."""
        turned = autocast_input(t, self._matrices(t))
        low = autocast_input(t, x)
        product = general(t, (low, turned), low.shape, low.dtype, saved=(low, turned))
        del low, turned
        copied = general(t, (product,), product.shape, product.dtype)
        out = copied if self.quantised else cast(t, copied, self.rotation.dtype)
        del product, copied
        return out

    def _matrices(self, t: Tape) -> Tensor:
        """The orthogonal matrix of each block."""
        blocks = self.rotation.shape[0]
        shape = (blocks, self.block, self.block)
        skew = general(t, (self.rotation,), shape, self.rotation.dtype)
        low = t.autocast or self.rotation.dtype
        return general(t, (skew,), shape, self.rotation.dtype, made=[(shape, low)] * _POWERS)
