"""Quantised linear layers and their adapters, as bitsandbytes and PEFT write them."""

from __future__ import annotations

from vramwise.ghost.dtypes import DType
from vramwise.ghost.model.linear import LORA_CALLS, Projection
from vramwise.ghost.ops.elementwise import add, cast, dropout, scale
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.quantised import TRAINED_OUTLIERS, linear_4bit, linear_8bit, outlier_share
from vramwise.ghost.ops.shape import cloned
from vramwise.ghost.tape import Parameter, Tape, Tensor


class Linear4bit:
    """A frozen 4-bit weight."""

    __slots__ = ("bias", "compute", "nested", "shape")

    def __init__(self, shape: tuple[int, int], bias: Parameter | None, compute: DType, *, nested: bool = True) -> None:
        self.shape = shape
        self.bias = bias
        self.compute = compute
        self.nested = nested

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        return linear_4bit(t, x, self.shape, self.bias, self.compute, nested=self.nested)


class Linear8bit:
    """A frozen 8-bit weight.

    `after_gate`: the model's width, where its input is a gated product: that has outliers. Of trained weights a handful
    of columns; of random ones as many as their initial scale makes. `keeps`: the graph holds the input.
    """

    __slots__ = ("after_gate", "keeps", "shape", "trained")

    def __init__(
        self, shape: tuple[int, int], after_gate: int | None = None, *, keeps: bool = True, trained: bool = True
    ) -> None:
        self.shape = shape
        self.keeps = keeps
        self.after_gate = after_gate
        self.trained = trained

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        outliers = self._outliers(x.numel // x.shape[-1], x.shape[-1])
        return linear_8bit(t, x, self.shape, outliers, keeps=self.keeps)

    def _outliers(self, rows: int, width: int) -> int:
        if not self.after_gate:
            return 0
        return min(TRAINED_OUTLIERS, width) if self.trained else round(outlier_share(self.after_gate, rows) * width)


class QuantisedLoraLinear:
    """PEFT's LoRA around a quantised layer: under autocast the branch takes the input as it is; 4-bit results are
    cloned."""

    __slots__ = ("base", "clones", "down", "rate", "up")

    def __init__(self, base: Projection, down: Parameter, up: Parameter, rate: float, *, clones: bool) -> None:
        self.base = base
        self.down = down
        self.up = up
        self.rate = rate
        self.clones = clones

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
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
