"""Variables of the training loop that outlive a step, as in the Trainer: each lives until the next one replaces it."""

from __future__ import annotations

from vramwise.ghost.tape import Storage, Tensor

Batch = dict[str, Tensor]


class LoopState:
    """The micro-batches of a step, their label count, the current batch, its loss, and the gradient norm."""

    def __init__(self) -> None:
        self.samples: list[Batch] = []
        self.items: Tensor | None = None
        self.inputs: Batch | None = None
        self.loss: Tensor | None = None
        self.grad_norm: Tensor | None = None

    def storages(self) -> list[Storage]:
        """Return the storages that the next step will find and replace."""
        tensors = [tensor for batch in self.samples for tensor in batch.values()]
        tensors += [tensor for tensor in (self.items, self.loss, self.grad_norm) if tensor is not None]
        return [tensor.storage for tensor in tensors if tensor.storage is not None]

    def close(self) -> None:
        """Free everything at the end of the loop."""
        self.grad_norm = self.loss = self.inputs = self.items = None
        self.samples = []
