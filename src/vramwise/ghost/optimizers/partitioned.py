"""ZeRO's optimizer: the run's own one over flat fp32 partitions, one after the other.

Whatever optimizer the trainer makes, DeepSpeed puts one flat fp32 weight in the place of each group: 8-bit and paged
optimizers keep their kind of states for it, and know nothing any more of embeddings or of small weights.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.optimizers.base import Optimizer, Trained
from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor

Maker = Callable[[Trained], Optimizer]


class Partition:
    """A flat fp32 weight, and the optimizer that steps it."""

    __slots__ = ("elements", "optimizer", "weight")

    def __init__(self, t: Tape, number: int, elements: int, make: Maker) -> None:
        self.elements = elements
        self.weight = Parameter(t, f"partition {number}", (elements,), FP32, trainable=False, stored=0)
        self.optimizer = make(Trained(decayed=[self.weight], plain=[]))

    def hold_master(self, t: Tape, dtype: DType, *, copies: int, from_host: bool) -> None:
        """The fp32 weights: cloned and then cast (1), or cast and then cloned (2), from weights of that type.

        Those that are fp32 already are taken as they are, unless they come from the host.
        """
        t.mark("optimizer", "fp32 weights of the partition")
        if dtype is FP32 and not from_host:
            self.weight.storage = Storage(t, self.elements * FP32.size)
            return
        first = Storage(t, self.elements * (dtype.size if copies == 1 else FP32.size))
        self.weight.storage = Storage(t, self.elements * FP32.size)
        del first

    def step(self, t: Tape, pieces: int, dtype: DType, release: Callable[[], None]) -> None:
        """The gradient's pieces become one, and that one fp32; only then do they go. States come at the first step."""
        t.mark("temporary", "fp32 gradients of the partition")
        flat = Storage(t, self.elements * dtype.size) if pieces > 1 else None
        wide = Storage(t, self.elements * FP32.size) if dtype is not FP32 or flat is None else flat
        del flat
        release()
        self.weight.grad = Tensor(wide, (self.elements,), self.elements, FP32)
        del wide
        self.optimizer.step(t)
        self.weight.grad = None
