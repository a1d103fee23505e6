"""What torch recorded of one device: the allocator's events in order, their stacks, and the segments at the end.

The common form of torch snapshots and trace files. `reader` reads those; `initial` reconstructs what was there before
the recording. Stacks are those of torch's memory history: frames of filename, name and line, innermost first.
Autograd's own thread has no Python stack. Does not know what a call says about the memory's purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from vramwise.allocator.settings import TorchVersion
from vramwise.errors import VramwiseError

# torch's actions. FREE is ours: a free_requested directly followed by its free_completed, as nearly all are.
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
# Actions without memory: torch's own markers, and whatever later versions add.
_UNKNOWN: Final = -1
TOO_LARGE: Final = 1 << 48  # CUDA addresses have 47 bits
LONGEST_NOTE: Final = 120

# One event: action, address, size, stream. `size` is the request as made (rounded in an out-of-memory, where the
# address is meaningless). A plain tuple, because a recording has a hundred thousand of them.
RecordedEvent = tuple[int, int, int, int]


class RecordedBlock(NamedTuple):
    """A block in use at the end of a recording; `waiting`: freed, but still used on another stream."""

    address: int
    size: int
    requested: int
    waiting: bool


class RecordedSegment(NamedTuple):
    """A segment at the end of a recording; for expandable segments, one mapped range.

    `blocks`: the blocks in use, by address; None if the file does not list them.
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
    sources: Sequence[int]  # position of each in the file, which has free_requested and free_completed apart
    count: int  # of the file
    left_out: int = 0  # skipped events at the start, if there are too many


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording of one device."""

    name: str
    device: int
    events: Events
    segments: Sequence[RecordedSegment]
    settings: str
    torch: TorchVersion | None  # None if the file does not say
    entries: Sequence[Mapping[str, Any]] = ()  # a snapshot's own entries, by position in the file

    def stack(self, event: int) -> Any:
        """Return the stack of an event as torch wrote it, or None."""
        return self.entries[self.events.sources[event]].get("frames") if self.entries else None

    def notes(self) -> dict[int, str]:
        """Return the last note per allocation from `torch.cuda.memory._annotate_tensor` (torch 2.14), by event."""
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
    """Check the events and join frees with their completions; `of` returns a row's action, address, size, stream.

    If there are more than `most`, the last ones are used, as if torch's ring buffer had been that small. Segment events
    and new streams count as several, by their replay cost. Raises VramwiseError for a malformed event.
    """
    events: list[RecordedEvent] = []
    sources: list[int] = []
    landmarks: list[int] = []
    left_out = _first_played(rows, most, of)
    requested = -1  # the address if the previous event was a free_requested
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


# The replay cost of an event relative to an allocation. A free joined with its completion costs as much as two; an
# unpaired one refers to a block from before the recording. Each stream has its own segments.
_WEIGHTS: Final = {_UNKNOWN: 1, ALLOC: 1, FREE_REQUESTED: 2, FREE_COMPLETED: 2}
_SEGMENT_WEIGHT: Final = 20
_STREAM_WEIGHT: Final = 400


def _first_played(rows: Sequence[Any], most: int, of: Callable[[Any], Sequence[Any]]) -> int:
    """Return the position of the first event to replay."""
    streams: set[Any] = set()
    spent = -_STREAM_WEIGHT  # there is at least one stream
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


NO_STACK = "no stack recorded"
# Files that are not informative: torch itself (except its optimizers), the interpreter, and non-Python code.
_PLUMBING = ("/torch/", "<frozen")
_TELLING = ("/torch/optim/",)
_NATIVE = (".cpp", ".cu", ".h", "??")
# Deeper than the calls of any program.
_MOST_CALLS = 1000


class Call(NamedTuple):
    """One frame of a stack."""

    file: str
    name: str
    line: int


def calls_of(stack: Any) -> list[Call]:
    """Return the calls of a stack, innermost first. Malformed frames are skipped, long stacks and texts cut off."""
    found = []
    for frame in stack[:_MOST_CALLS] if isinstance(stack, (list, tuple)) else ():
        if isinstance(frame, dict):
            file, name, line = frame.get("filename"), frame.get("name"), frame.get("line")
            if isinstance(file, str) and isinstance(name, str):
                file = _text(file, 400).replace("\\", "/")
                found.append(Call(file, _text(name, 120), line if type(line) is int else 0))
    return found


def _text(value: str, longest: int) -> str:
    """Truncate a text; lone surrogates, which cannot be written, become question marks."""
    return value[:longest].encode("utf-8", "replace").decode("utf-8")


def place_of(calls: list[Call]) -> str:
    """Return the innermost call outside torch, as `modeling_llama.py:231 forward`; otherwise the innermost."""
    python = [call for call in calls if call.file and not call.file.endswith(_NATIVE)]
    telling = [
        call
        for call in python
        if any(part in call.file for part in _TELLING) or not any(part in call.file for part in _PLUMBING)
    ]
    for call in (telling or python)[:1]:
        return f"{call.file.rsplit('/', 1)[-1]}:{call.line} {call.name}"
    return NO_STACK
