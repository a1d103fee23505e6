"""BAdam by layers: one block is trained at a time, through fp32 copies that another optimizer steps.

After badam 1.4 (`BlockOptimizer`): the copies are made with the optimizer, before training. A step casts gradients to
fp32 one by one, steps the copies, writes them back, and hands idle memory back.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.optimizers.base import Kind, Optimizer, Trained
from vramwise.ghost.tape import Parameter, Storage, Tape

NAME = "badam"


class BlockAdam:
    """`stepped`: the name of the optimizer that steps the copies. Biases form their second group."""

    def __init__(self, trained: Trained, stepped: str) -> None:
        self.parameters = sorted(trained.ordered, key=lambda one: one.name.endswith("bias"))
        self.stepped = stepped
        self.copies: list[Parameter] = []
        self.inner: Optimizer | None = None

    def prepare(self, t: Tape) -> None:
        """Make the copies."""
        from vramwise.ghost.optimizers import optimizer_named  # it finds this file

        for parameter in self.parameters:
            t.mark("optimizer", parameter.name)
            clone = Storage(t, parameter.local * parameter.dtype.size)
            self.copies.append(Parameter(t, parameter.name, parameter.shape, FP32, trainable=False))
            del clone
        plain = [copy for copy in self.copies if copy.name.endswith("bias")]
        decayed = [copy for copy in self.copies if not copy.name.endswith("bias")]
        self.inner = optimizer_named(self.stepped, Trained(decayed=decayed, plain=plain))

    def step(self, t: Tape) -> None:
        """Gradients in fp32, the step, the way back."""
        assert self.inner is not None
        t.mark("gradients", "gradients in fp32")
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            if parameter.grad is not None:
                copy.grad = t.new(parameter.shape, FP32)
                parameter.grad = None
        self.inner.step(t)
        t.mark("temporary", "optimizer step")
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            written = Storage(t, parameter.local * parameter.dtype.size)
            del written
            copy.grad = None
        t.empty_cache()


def _make(name: str, trained: Trained) -> Optimizer:
    return BlockAdam(trained, name.removeprefix(NAME).strip() or "adamw_torch")


OPTIMIZERS = (Kind(names=(NAME,), handles=lambda name: name.startswith(f"{NAME} "), make=_make),)
