"""Activation offloading: what the graph saves goes to the host and comes back when its backward step needs it.

After torchtune's OffloadActivations, which TRL uses, too: tensors under a kilobyte and weights stay; the last
five that were sent off are kept on the device until their copies are surely done. Host memory is not modelled.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from vramwise.ghost.checkpointing import Block, reentrant
from vramwise.ghost.dtypes import DType
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.tape import Node, Parameter, Tape, Tensor

_MIN_BYTES = 1024
_IN_FLIGHT = 5


class _OnHost(NamedTuple):
    """A tensor that is elsewhere."""

    shape: tuple[int, ...]
    dtype: DType
    heads_first: bool


class Offload:
    """Packs saved tensors by sending them to the host, unpacks them into new ones."""

    def __init__(self, *, in_flight: int = _IN_FLIGHT) -> None:
        self.sent: deque[Tensor] = deque(maxlen=in_flight)

    def pack(self, saved: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
        """Send off what is large enough and no weight."""
        return tuple([self._send(tensor) for tensor in saved])

    def _send(self, tensor: Tensor | None) -> Tensor | _OnHost | None:
        if tensor is None or isinstance(tensor, Parameter) or tensor.numel * tensor.dtype.size < _MIN_BYTES:
            return tensor
        self.sent.append(without_node(tensor))
        return _OnHost(tensor.shape, tensor.dtype, tensor.heads_first)

    def unpack(self, t: Tape, node: Node) -> list[Tensor | None]:
        """Bring back what this node saved."""
        self.sent.clear()
        before = t.mark("activations", "brought back from the host")
        found = [self._bring(t, item) for item in node.saved]
        t.tag = before
        return found

    def _bring(self, t: Tape, item: Any) -> Tensor | None:
        if not isinstance(item, _OnHost):
            kept: Tensor | None = item
            return kept
        out = t.new(item.shape, item.dtype)
        out.heads_first = item.heads_first
        return out


def reentrant_to_host(t: Tape, block: Block, x: Tensor) -> Tensor:
    """Checkpointing whose kept inputs go to the host."""
    outer = t.frame
    t.checkpoint_frame = Offload(in_flight=0)
    try:
        return reentrant(t, block, x)
    finally:
        t.frame = outer
        t.checkpoint_frame = None
