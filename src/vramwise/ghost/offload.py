"""Activation offloading: what the graph saves goes to the host and comes back when its backward step needs it.

After TRL's OffloadActivations (1.9 to 1.14), torchtune's before it. Host memory is not modelled. With a second stream:

- copies take their time, so what is sent stays on the device until five more have been saved; saved once more in that
  time, it stays for good;
- what comes back lies in the second stream's own pool, and goes when the step after the one that needed it is done.
  Inside a reentrant checkpoint nobody counts steps: it stays until the checkpoint before has been run through;
- the input of a block that is run again is marked as used by the compute stream (`record_stream`), because the second
  run keeps views of it. Its block is of use again when the card has done what was launched before it was freed. The
  host launches ahead of the card, as far as the driver's queue goes, so several such blocks are held at once.

Without one (`legacy`) all goes at once, and comes back in the compute stream's pool.
"""

from __future__ import annotations

from collections import deque
from math import inf, prod
from typing import Any, NamedTuple

from vramwise.ghost.checkpointing import reruns
from vramwise.ghost.dtypes import DType
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.flash import takes_tokens_first
from vramwise.ghost.ops.matmul import saves_transposed
from vramwise.ghost.tape import Backward, Node, Parameter, Storage, Tape, Tensor
from vramwise.timeline import Action, Event
from vramwise.types import RunSpec

_MIN_BYTES = 1024
_IN_FLIGHT, _INPUTS_IN_FLIGHT = 5, 2
_SIDE_STREAM = 1
# So many kernels the host launches before it has to wait for the card: the driver's queue.
_LAUNCHED_AHEAD = 1024

_Key = tuple[int, DType]


class _OnHost(NamedTuple):
    """A tensor that is elsewhere, under the number it was saved with."""

    number: int
    shape: tuple[int, ...]
    dtype: DType
    heads_first: bool
    recorded: bool  # it is marked as used by the compute stream when it comes back


class _Kept(NamedTuple):
    """A tensor that stays: an earlier save of it was still on its way."""

    number: int
    tensor: Tensor


class _Held(Storage):
    """A block that is still used by another stream when it is freed: `owner` says when it no longer is."""

    __slots__ = ("owner",)

    def __init__(self, tape: Tape, nbytes: int, owner: Offload) -> None:
        super().__init__(tape, nbytes)
        self.owner = owner

    def __del__(self) -> None:
        self.owner.hold(self)


class Offload:
    """Packs saved tensors by sending them to the host, unpacks them into new ones.

    `weights_stay`: views of weights are told from activations; without that, the transposed view that a matrix product
    saves is copied and sent like any other. `in_flight`: so many saves after it, a sent tensor goes. `recorded`: inputs
    of blocks that run again are marked as used by the compute stream; what else is brought back is kept for a while.
    """

    def __init__(
        self,
        t: Tape,
        *,
        streams: bool = True,
        weights_stay: bool = False,
        in_flight: int = _IN_FLIGHT,
        recorded: bool = False,
    ) -> None:
        self._t = t
        self._streams = streams
        self._in_flight = in_flight
        self._recorded = recorded
        self._held: deque[tuple[float, int, int]] = deque()  # (kernels launched before it, number, bytes)
        self._closed = False
        self._weights_stay = weights_stay
        self._number = 0
        self._sent: dict[int, Tensor] = {}
        self._number_of: dict[_Key, int] = {}
        self._key_of: dict[int, _Key] = {}
        self._back: dict[int, Tensor] = {}
        # for each step under way: what was brought back for earlier ones and goes when it is done; None: nothing does
        self._due: list[list[int] | None] = []
        self._used = False

    def pack(self, saved: tuple[Tensor | None, ...], backward: Backward) -> tuple[Any, ...]:
        """Send off what is large enough and no weight."""
        # they are handed over from the last to the first
        return tuple([self._send(tensor, backward) for tensor in saved[::-1]])[::-1]

    def _send(self, tensor: Tensor | None, backward: Backward) -> Tensor | _OnHost | _Kept | None:
        if tensor is None or tensor.storage is None:
            return tensor
        tensor = self._made_contiguous(tensor, backward)
        self._number += 1
        assert tensor.storage is not None
        key = (tensor.storage.number, tensor.dtype)
        if self._streams and key in self._number_of:
            self._track(key, self._number)
            return _Kept(self._number, without_node(tensor))
        if isinstance(tensor, Parameter) or tensor.numel * tensor.dtype.size < _MIN_BYTES:
            return tensor
        if self._t.work is not None:
            self._t.work.copy(tensor.numel * tensor.dtype.size, to_host=True)
            if not self._streams:
                self._t.work.sync()
        if self._streams:
            self._let_go(self._number - self._in_flight)
            self._sent[self._number] = without_node(tensor)
            self._track(key, self._number)
        recorded = self._recorded and self._streams and reruns(backward)
        return _OnHost(self._number, tensor.shape, tensor.dtype, tensor.heads_first, recorded)

    def _made_contiguous(self, tensor: Tensor, backward: Backward) -> Tensor:
        """A copy of what is not one piece of memory: transposed views, slices."""
        assert tensor.storage is not None
        if saves_transposed(backward) and len(tensor.shape) == 2:
            apart = not (isinstance(tensor, Parameter) and self._weights_stay)
        elif isinstance(tensor, Parameter):
            apart = False
        else:
            heads = len(tensor.shape) == 4 and tensor.shape[1] > 1 and not takes_tokens_first(backward)
            apart = (heads and not tensor.heads_first) or tensor.numel * tensor.dtype.size < tensor.storage.nbytes
        if not apart:
            return tensor
        copied = self._t.new(tensor.shape, tensor.dtype)
        copied.heads_first = tensor.heads_first
        return copied

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
        """Bring back what this node saved."""
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
            return self._sent[item.number]
        out = self._new(t, item)
        out.heads_first = item.heads_first
        if t.work is not None:
            t.work.no_kernel(out)
            t.work.copy(out.numel * out.dtype.size, to_host=False)
        if self._streams:
            t.on_stream(out, _SIDE_STREAM)
            if not item.recorded:
                self._back[item.number] = without_node(out)
        return out

    def _new(self, t: Tape, item: _OnHost) -> Tensor:
        if not item.recorded:
            return t.new(item.shape, item.dtype)
        self._complete(self._launched() - _LAUNCHED_AHEAD)
        numel = prod(item.shape)
        return Tensor(_Held(t, numel * item.dtype.size, self), item.shape, numel, item.dtype)

    def hold(self, storage: Storage) -> None:
        """Nothing refers to the storage any longer; after the end of backward all streams have been waited for."""
        event = Action.FREE if self._closed else Action.HOLD
        storage.events.append(Event(event, storage.number, storage.nbytes, 0, 0))
        if not self._closed:
            self._t.holds = True
            self._held.append((self._launched(), storage.number, storage.nbytes))

    def _launched(self) -> float:
        return 0.0 if self._t.work is None else self._t.work.launched()

    def _complete(self, launched: float) -> None:
        """The card has done what was launched up to here."""
        while self._held and self._held[0][0] <= launched:
            _, number, nbytes = self._held.popleft()
            self._t.events.append(Event(Action.COMPLETE, number, nbytes, 0, 0))

    def finished(self) -> None:
        """The node that unpacked last is done."""
        due = self._due.pop()
        if due is None:
            return
        self._let_go(self._number)
        for number in due:
            self._back.pop(number, None)

    def close(self) -> None:
        """The end of backward: both streams are waited for."""
        self._back.clear()
        self._sent.clear()
        self._number_of.clear()
        self._complete(inf)
        self._closed = True


def counts_launches(run: RunSpec) -> bool:
    """Whether blocks are held until the card has caught up with the host: the tape must count kernels then."""
    away = run.savings.activation_offloading
    return away == "hidden_states" or (away == "stream" and _recorded(run))


def _recorded(run: RunSpec) -> bool:
    return run.savings.recompute and not run.savings.checkpointing_reentrant


def offload_of(t: Tape, run: RunSpec) -> Offload | None:
    """What takes everything that a micro-step saves, if the run has it; a full fine-tune tells weights apart."""
    if run.savings.activation_offloading not in ("stream", "legacy"):
        return None
    return Offload(
        t,
        streams=run.savings.activation_offloading == "stream",
        weights_stay=run.adapter.kind is None,
        recorded=_recorded(run),
    )


def inputs_offload_of(t: Tape, run: RunSpec) -> Offload | None:
    """What takes the inputs of checkpointed blocks alone, if the run has it."""
    if run.savings.activation_offloading != "hidden_states":
        return None
    return Offload(t, in_flight=_INPUTS_IN_FLIGHT, recorded=True)
