"""What torch recorded of one device: the events of its allocator in order, and the segments it had at the end.

The common form of a torch snapshot and of a trace file. Reading those is `snapshot`'s business; what was there before
the recording began is worked out in `initial`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from vramwise.allocator.settings import TorchVersion
from vramwise.errors import VramwiseError

# torch's actions. FREE is ours: a free_requested with its free_completed right behind it, as nearly all are.
ALLOC: Final = 0
FREE: Final = 1
FREE_REQUESTED: Final = 2
FREE_COMPLETED: Final = 3
SEGMENT_ALLOC: Final = 4
SEGMENT_FREE: Final = 5
SEGMENT_MAP: Final = 6
SEGMENT_UNMAP: Final = 7
OUT_OF_MEMORY: Final = 8

ACTIONS: Final = {
    "alloc": ALLOC,
    "free_requested": FREE_REQUESTED,
    "free_completed": FREE_COMPLETED,
    "segment_alloc": SEGMENT_ALLOC,
    "segment_free": SEGMENT_FREE,
    "segment_map": SEGMENT_MAP,
    "segment_unmap": SEGMENT_UNMAP,
    "oom": OUT_OF_MEMORY,
}
# Actions that carry no memory: torch's own marks, and whatever later versions add.
_UNKNOWN: Final = -1
TOO_LARGE: Final = 1 << 48  # CUDA addresses have 47 bits
LONGEST_NOTE: Final = 120

# One event: action, address, size, stream. `size` is the request as it was made (rounded in an out-of-memory, where the
# address means nothing). A plain tuple, because a recording has a hundred thousand of them.
RecordedEvent = tuple[int, int, int, int]


class RecordedBlock(NamedTuple):
    """A block in use at the end of a recording; `waiting`: freed, but still used on another stream."""

    address: int
    size: int
    requested: int
    waiting: bool


class RecordedSegment(NamedTuple):
    """A segment at the end of a recording; of an expandable one, one stretch of mapped memory.

    `blocks`: what was in use there, by address; None where the file does not say.
    """

    address: int
    size: int
    small: bool
    stream: int
    expandable: bool
    blocks: tuple[RecordedBlock, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """A recording's events. `landmarks` are the positions of those that are neither an allocation nor a free."""

    rows: Sequence[RecordedEvent]
    landmarks: Sequence[int]
    sources: Sequence[int]  # position of each in the file, where free_requested and free_completed are two
    count: int  # of the file
    left_out: int = 0  # the first ones, where there are more than are played


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording of one device."""

    name: str
    device: int
    events: Events
    segments: Sequence[RecordedSegment]
    settings: str
    torch: TorchVersion | None  # None where the file does not say
    entries: Sequence[Mapping[str, Any]] = ()  # a snapshot's own entries, by position in the file

    def stack(self, event: int) -> Any:
        """The stack an event came from, as torch wrote it, or None."""
        return self.entries[self.events.sources[event]].get("frames") if self.entries else None

    def notes(self) -> dict[int, str]:
        """What `torch.cuda.memory._annotate_tensor` (torch 2.14) attached: each allocation's last note, by event."""
        if not any(entry.get("action") == "annotate" for entry in self.entries):
            return {}
        number_of = {source: number for number, source in enumerate(self.events.sources)}
        newest: dict[Any, int] = {}
        found: dict[int, str] = {}
        for at, entry in enumerate(self.entries):
            action, address, note = entry["action"], entry.get("addr"), entry.get("user_metadata")
            if type(address) is not int:
                continue
            if action == "alloc" and at in number_of:
                newest[address] = number_of[at]
            elif action == "annotate" and address in newest and isinstance(note, str) and note:
                found[newest[address]] = note[:LONGEST_NOTE].encode("utf-8", "replace").decode("utf-8")
        return found


def collect_events(rows: Sequence[Any], most: int, of: Callable[[Any], Sequence[Any]] = lambda row: row) -> Events:
    """Check events one by one (action, address, size, stream, as `of` reads a row); join frees with their completions.

    Of more than `most` the last ones are taken: as if torch's own ring buffer had been that small. Events of segments
    and new streams count as several, by what they cost to play.
    """
    events: list[RecordedEvent] = []
    sources: list[int] = []
    landmarks: list[int] = []
    left_out = _first_played(rows, most, of)
    requested = -1  # the address of a free_requested, if that was the event before
    for number in range(left_out, len(rows)):
        action, address, size, stream = of(rows[number])
        code = ACTIONS.get(action, _UNKNOWN)
        if code == _UNKNOWN:
            continue
        if type(address) is not int or type(size) is not int or type(stream) is not int:
            raise VramwiseError(f"event {number} ({action}) has no usable address, size and stream")
        if not (0 <= address < TOO_LARGE and 0 <= size < TOO_LARGE):
            raise VramwiseError(f"event {number} ({action}) has an address or a size that no card has")
        if code == FREE_COMPLETED and address == requested:
            events[-1] = (FREE, address, size, stream)
            requested = -1
            continue
        requested = address if code == FREE_REQUESTED else -1
        if code > FREE_COMPLETED:
            landmarks.append(len(events))
        events.append((code, address, size, stream))
        sources.append(number)
    return Events(rows=events, landmarks=landmarks, sources=sources, count=len(rows), left_out=left_out)


# What an event costs to play beside an allocation. A free that is joined with its completion costs both together as
# much as two; one that is alone stands for a block from before. Each stream has segments of its own.
_WEIGHTS: Final = {_UNKNOWN: 1, ALLOC: 1, FREE_REQUESTED: 2, FREE_COMPLETED: 2}
_SEGMENT_WEIGHT: Final = 20
_STREAM_WEIGHT: Final = 400


def _first_played(rows: Sequence[Any], most: int, of: Callable[[Any], Sequence[Any]]) -> int:
    """The position of the first event that is played."""
    streams: set[Any] = set()
    spent = -_STREAM_WEIGHT  # there is one stream at least
    later = _UNKNOWN
    for number in range(len(rows) - 1, -1, -1):
        action, _, _, stream = of(rows[number])
        code = ACTIONS.get(action, _UNKNOWN)
        joined = code == FREE_REQUESTED and later == FREE_COMPLETED
        spent += 0 if joined else _WEIGHTS.get(code, _SEGMENT_WEIGHT)
        later = code
        if type(stream) is int and stream not in streams:
            streams.add(stream)
            spent += _STREAM_WEIGHT
        if spent > most:
            return number + 1
    return 0
