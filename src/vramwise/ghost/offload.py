"""Activation offloading: what the graph saves goes to the host and comes back when its backward step needs it.

After TRL's OffloadActivations (1.9 to 1.16), torchtune's before it. Host memory is not modelled. With a second stream:

- copies take their time, so what is sent stays on the device until five more have been saved; saved once more in that
  time, it stays for good;
- what comes back lies in the second stream's own pool, and goes when the step after the one that needed it is done.
  Inside a reentrant checkpoint nobody counts steps: it stays until the checkpoint before has been run through;
- the input of a block that runs again without reentry goes with what the second run keeps of it. It is marked as used
  by the compute stream (`record_stream`), so its memory is of use again when the card has caught up with the host: up
  to 1,024 launches later. This is not modelled: where memory is short, the allocator waits for it.

Without one (`legacy`) all goes at once, and comes back in the compute stream's pool.

Unsloth keeps the inputs of checkpointed blocks in host memory and brings them back into buffers on the card that stay
(`gradient_checkpointing.py`, unsloth_zoo 2026.10.9). Small inputs stay. From the second pass on the last block's input
stays too, and a second buffer lets a copy run beside the computation, if the card has room for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vramwise.ghost.checkpointing import reruns
from vramwise.ghost.dtypes import BF16, FP32, DType
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.flash import takes_tokens_first
from vramwise.ghost.ops.matmul import saves_transposed
from vramwise.ghost.tape import Backward, Node, Parameter, Storage, Tape, Tensor
from vramwise.types import RunSpec

_MIN_BYTES = 1024
_IN_FLIGHT, _INPUTS_IN_FLIGHT = 5, 2
_SIDE_STREAM = 1

_Key = tuple[int, DType]


class _OnHost(NamedTuple):
    """A saved tensor in host memory: the number of its save, and what it is made as when it comes back."""

    number: int
    shape: tuple[int, ...]
    dtype: DType
    heads_first: bool
    lingers: bool  # kept for a while once it is back


class _Kept(NamedTuple):
    """A saved tensor that stays on the device, because an earlier save of it is still being copied."""

    number: int
    tensor: Tensor


class Offload:
    """Sends saved tensors to host memory, and makes new tensors when their backward step needs them.

    `weights_stay`: views of weights are kept apart from activations; otherwise the transposed view that a matrix
    product saves is copied and sent like any other. `in_flight`: how many saves later a sent tensor is freed.
    `lingers`: tensors that are back are kept for a while. `inputs_linger`: so are the inputs of blocks that run again.
    """

    def __init__(
        self,
        t: Tape,
        *,
        streams: bool = True,
        weights_stay: bool = False,
        in_flight: int = _IN_FLIGHT,
        lingers: bool = True,
        inputs_linger: bool = True,
    ) -> None:
        self._t = t
        self._streams = streams
        self._in_flight = in_flight
        self._lingers = lingers
        self._inputs_linger = inputs_linger
        self._weights_stay = weights_stay
        self._number = 0
        self._sent: dict[int, Tensor] = {}
        self._number_of: dict[_Key, int] = {}
        self._key_of: dict[int, _Key] = {}
        self._left: dict[int, _Key] = {}  # by size: the place that the last copied matrix has left
        self._back: dict[int, Tensor] = {}
        # for each step under way: what was brought back for earlier ones and goes when it is done; None: nothing does
        self._due: list[list[int] | None] = []
        self._used = False

    def pack(self, saved: tuple[Tensor | None, ...], backward: Backward) -> tuple[Any, ...]:
        """Return the saved tensors, with those that are sent replaced by their place in host memory.

        Weights and tensors under 1 KiB are not sent.
        """
        # torch hands them over from the last to the first
        return tuple([self._send(tensor, backward) for tensor in saved[::-1]])[::-1]

    def _send(self, tensor: Tensor | None, backward: Backward) -> Tensor | _OnHost | _Kept | None:
        if tensor is None or tensor.storage is None:
            return tensor
        self._number += 1
        copied = self._is_copied(tensor, backward)
        key = self._place_of(tensor, copied)
        if self._streams and key in self._number_of:
            self._track(key, self._number)
            return _Kept(self._number, without_node(tensor))
        if (isinstance(tensor, Parameter) and not copied) or tensor.numel * tensor.dtype.size < _MIN_BYTES:
            return tensor
        if copied:
            tensor = self._copy(tensor)
        if self._t.work is not None:
            self._t.work.copy(tensor.numel * tensor.dtype.size, to_host=True)
            if not self._streams:
                self._t.work.sync()
        if self._streams:
            self._let_go(self._number - self._in_flight)
            self._sent[self._number] = without_node(tensor)
            self._track(key, self._number)
        lingers = self._lingers and (self._inputs_linger or not reruns(backward))
        return _OnHost(self._number, tensor.shape, tensor.dtype, tensor.heads_first, lingers)

    def _is_copied(self, tensor: Tensor, backward: Backward) -> bool:
        """Return whether a contiguous copy is sent, because the tensor is a transposed view or a slice."""
        assert tensor.storage is not None
        if saves_transposed(backward) and len(tensor.shape) == 2:
            return not (isinstance(tensor, Parameter) and self._weights_stay)
        if isinstance(tensor, Parameter):
            return False
        heads = len(tensor.shape) == 4 and tensor.shape[1] > 1 and not takes_tokens_first(backward)
        return (heads and not tensor.heads_first) or tensor.numel * tensor.dtype.size < tensor.storage.nbytes

    def _copy(self, tensor: Tensor) -> Tensor:
        copied = self._t.new(tensor.shape, tensor.dtype)
        copied.heads_first = tensor.heads_first
        return copied

    def _place_of(self, tensor: Tensor, copied: bool) -> _Key:
        """Return what identifies a tensor for TRL, which goes by addresses.

        Autocast frees its copy of a weight after the product, while that is still being copied to the host. The next
        matrix of the same size gets the same address, so TRL takes it for the same tensor and keeps it on the device.
        """
        assert tensor.storage is not None
        key = (tensor.storage.number, tensor.dtype)
        if not copied or isinstance(tensor, Parameter) or len(tensor.shape) != 2:
            return key
        left = self._left.pop(tensor.storage.nbytes, None)
        if left is not None and left in self._number_of:
            return left
        self._left[tensor.storage.nbytes] = key
        return key

    def _track(self, key: _Key, number: int) -> None:
        self._number_of[key] = number
        self._key_of[number] = key

    def _untrack(self, number: int) -> None:
        key = self._key_of.pop(number, None)
        if key is not None and self._number_of.get(key) == number:
            del self._number_of[key]

    def _let_go(self, last: int) -> None:
        for number in [sent for sent in self._sent if sent <= last]:
            del self._sent[number]
            self._untrack(number)

    def unpack(self, t: Tape, node: Node) -> list[Tensor | None]:
        """Return the tensors that the node saved, those from host memory as new tensors."""
        before = t.mark("activations", "brought back from the host")
        due = [] if t.nested else list(self._back)
        self._used = False
        found = [self._bring(t, item) for item in node.saved[::-1]][::-1]
        t.tag = before
        self._due.append(due if self._used else None)
        return found

    def _bring(self, t: Tape, item: Any) -> Tensor | None:
        if isinstance(item, _Kept):
            self._untrack(item.number)
            return item.tensor
        if not isinstance(item, _OnHost):
            kept: Tensor | None = item
            return kept
        self._used = True
        self._untrack(item.number)
        if item.number in self._sent:
            sent = self._sent[item.number]
            sent.view = True  # it is held here too: if it is a gradient, another cannot be added to it in place
            return sent
        out = t.new(item.shape, item.dtype)
        out.heads_first = item.heads_first
        if t.work is not None:
            t.work.no_kernel(out)
            t.work.copy(out.numel * out.dtype.size, to_host=False)
        if self._streams:
            t.on_stream(out, _SIDE_STREAM)
            if item.lingers:
                self._back[item.number] = without_node(out)
        return out

    def finished(self) -> None:
        """Free what earlier steps brought back, now that the step that unpacked last is done."""
        due = self._due.pop()
        if due is None:
            return
        self._let_go(self._number)
        for number in due:
            self._back.pop(number, None)

    def close(self) -> None:
        """Free everything that is still held: backward is over."""
        self._back.clear()
        self._sent.clear()
        self._number_of.clear()
        self._left.clear()


def offload_of(t: Tape, run: RunSpec) -> Offload | None:
    """Return what takes everything that a micro-step saves; None if the run keeps it on the device."""
    if run.savings.activation_offloading not in ("stream", "legacy"):
        return None
    return Offload(
        t,
        streams=run.savings.activation_offloading == "stream",
        weights_stay=run.adapter.kind is None,
        inputs_linger=run.savings.checkpointing_reentrant,
    )


def inputs_offload_of(t: Tape, run: RunSpec) -> Offload | None:
    """Return what takes the inputs of checkpointed blocks alone; None if the run keeps them on the device."""
    if run.savings.activation_offloading != "hidden_states":
        return None
    return Offload(t, in_flight=_INPUTS_IN_FLIGHT, lingers=False)


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
