"""Memory on other streams than the one that computes: the allocator reuses it for that stream alone."""

from __future__ import annotations

from vramwise.ghost.tape import Storage, Tape
from vramwise.timeline import Action, Event

GATHER_STREAM = 1
REDUCE_STREAM = 2
# a second model that FSDP shards by itself has streams of its own
REFERENCE_STREAM = 3


class StreamStorage(Storage):
    """Memory that was asked for on another stream than the one that computes."""

    __slots__ = ()

    def __init__(self, tape: Tape, nbytes: int, stream: int) -> None:
        super().__init__(tape, nbytes)
        made = tape.events[self.event]
        tape.events[self.event] = Event(Action.ALLOC, made.tensor, nbytes, stream, made.tag)
