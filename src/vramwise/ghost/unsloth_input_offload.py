"""Inputs of checkpointed blocks in host memory, brought back into buffers on the card that are kept.

After Unsloth's `gradient_checkpointing.py` (unsloth_zoo 2026.10.9). Small inputs stay. From the second pass on the last
block's input stays too, and a second buffer lets a copy run beside the computation, where the card has room for it.
Host memory is not modelled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vramwise.ghost.dtypes import BF16, FP32, DType
from vramwise.ghost.tape import Backward, Node, Storage, Tape, Tensor
from vramwise.types import RunSpec

_MIB = 1024**2
# Buffers begin with this size; an input is sent away where it has more bytes than this.
_FIRST_BYTES = 2 * _MIB
_BUFFERS = ("staging buffer", "second staging buffer")


class _Away(NamedTuple):
    """An input in host memory."""

    shape: tuple[int, ...]
    numel: int
    dtype: DType
    buffer: str


class UnslothInputOffload:
    """Takes the place of checkpointed inputs: copies them to host memory and back into buffers of the tape.

    There is one for each micro-step. `second`: copies may use the second buffer.
    """

    def __init__(self, t: Tape, *, second: bool) -> None:
        self._t = t
        self._second = second
        self._sent = 0

    def pack(self, saved: tuple[Tensor | None, ...], backward: Backward) -> tuple[Any, ...]:
        """Return the inputs, with those of more than 2 MiB replaced by their place in host memory."""
        return tuple([self._send(tensor) for tensor in saved])

    def _send(self, tensor: Tensor | None) -> Tensor | _Away | None:
        if tensor is None or tensor.storage is None:
            return tensor
        stored = BF16 if tensor.dtype is FP32 else tensor.dtype
        nbytes = tensor.numel * stored.size
        if nbytes <= _FIRST_BYTES:
            return tensor
        t = self._t
        for name in _BUFFERS:
            _buffer(t, name, _FIRST_BYTES)
        for name in _BUFFERS[: 1 + self._second]:
            _buffer(t, name, nbytes)
        if t.work is not None:
            t.work.copy(nbytes, to_host=True)
        name = _BUFFERS[self._sent % 2 if self._second else 0]
        self._sent += 1
        return _Away(tensor.shape, tensor.numel, tensor.dtype, name)

    def unpack(self, t: Tape, node: Node) -> list[Tensor | None]:
        """Return the inputs that the node saved, those from host memory in a buffer or, in fp32, in new tensors."""
        return [self._bring(t, item) for item in node.saved]

    def _bring(self, t: Tape, item: Any) -> Tensor | None:
        if not isinstance(item, _Away):
            kept: Tensor | None = item
            return kept
        if t.work is not None:
            t.work.copy(item.numel * (BF16 if item.dtype is FP32 else item.dtype).size, to_host=False)
        if item.dtype is FP32:
            return t.new(item.shape, FP32)
        return Tensor(t.once[item.buffer], item.shape, item.numel, item.dtype)

    def finished(self) -> None:
        """Do nothing: the buffers are kept."""


def _buffer(t: Tape, name: str, nbytes: int) -> None:
    """Make a buffer; if it exists and is too small, replace it by a larger one."""
    held = t.once.get(name)
    if held is None or held.nbytes < nbytes:
        before = t.mark("workspace", "staging buffers of checkpointed inputs")
        t.once[name] = Storage(t, nbytes)
        t.tag = before


def unsloth_input_offload_of(t: Tape, run: RunSpec, *, first: bool) -> UnslothInputOffload | None:
    """Return what takes the inputs of checkpointed blocks; None if the run keeps them. `first`: of the run's passes."""
    if run.savings.activation_offloading != "staged":
        return None
    t.last_block_keeps = not first
    return UnslothInputOffload(t, second=not first)
