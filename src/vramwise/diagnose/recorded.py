"""A recording as a timeline: each allocation tagged with what its stack says it is for, up to the moment of interest.

The same type a prediction has, so that charts, tables and the report page draw both. Memory that was there before the
recording began comes first, as weights or whatever it was: nothing tells.
"""

from __future__ import annotations

from vramwise.allocator.initial import initial_segments
from vramwise.allocator.recording import ALLOC, FREE, FREE_COMPLETED, OUT_OF_MEMORY, Recording
from vramwise.allocator.replay import USUAL_TORCH
from vramwise.allocator.settings import parse_settings
from vramwise.diagnose.frames import category_of, place_of
from vramwise.timeline import Action, Event, Phase, Tag, Timeline

_BEFORE = Tag("before the recording", "allocated before the recording began")


def recorded_timeline(recording: Recording, until: int) -> Timeline:
    """The recording's requests and frees up to an event, which is included."""
    return _Tagger(recording).timeline(until)


class _Tagger:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.events: list[Event] = []
        self.tags: dict[Tag, int] = {}
        self._of_stack: dict[int, int] = {}  # by identity: torch writes a stack once and refers to it again
        self._tensors = 0
        self._live: dict[int, int] = {}

    def timeline(self, until: int) -> Timeline:
        recording = self.recording
        torch = recording.torch or USUAL_TORCH
        self.events.append(Event(Action.PHASE, 0, 0, 0, 0))
        for segment in initial_segments(recording, parse_settings(recording.settings, torch), torch):
            for block in segment.blocks:
                self._alloc(block.address, block.requested, segment.stream, self._number(_BEFORE))
        for index, (action, address, size, stream) in enumerate(recording.events.rows[: until + 1]):
            if action == ALLOC or (action == OUT_OF_MEMORY and index == until):
                self._alloc(address if action == ALLOC else -1, size, stream, self._tag(index))
            elif action in (FREE, FREE_COMPLETED) and address in self._live:
                self.events.append(Event(Action.FREE, self._live.pop(address), 0, stream, 0))
        return Timeline(events=self.events, tags=list(self.tags), phases=[Phase("recorded", 0)])

    def _alloc(self, address: int, size: int, stream: int, tag: int) -> None:
        self._tensors += 1
        self._live[address] = self._tensors
        self.events.append(Event(Action.ALLOC, self._tensors, size, stream, tag))

    def _tag(self, index: int) -> int:
        stack = self.recording.stack(index)
        number = self._of_stack.get(id(stack))
        if number is None:
            number = self._of_stack[id(stack)] = self._number(Tag(category_of(stack), place_of(stack)))
        return number

    def _number(self, tag: Tag) -> int:
        return self.tags.setdefault(tag, len(self.tags))
