"""A recorded run as a timeline, so that measured and predicted runs share charts and reports.

A recording does not say what memory was for: each allocation is named by its stack, if recorded, and all have one
category, unless the caller derives more from stacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.allocator.settings import TorchVersion, parse_settings
from vramwise.recordings.initial import initial_segments
from vramwise.recordings.recording import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OUT_OF_MEMORY,
    Recording,
    calls_of,
    place_of,
)
from vramwise.recordings.releases import find_releases
from vramwise.timeline import Action, Event, Phase, Tag, Timeline

CATEGORY = "recorded"
_BEFORE = Tag("before the recording", "in use before the recording")
# The address of a failed request: no block has it.
_NOWHERE = -1


def named_by_place(stack: Any) -> Tag:
    """Return a tag with one category for all and the place in the code."""
    return Tag(CATEGORY, place_of(calls_of(stack)))


def timeline_of(
    recording: Recording,
    torch: TorchVersion,
    *,
    until: int | None = None,
    tag_of: Callable[[Any], Tag] = named_by_place,
) -> Timeline:
    """Return a recorded run as a timeline: first the initial blocks, then each allocation, named by its stack.

    `until`: the last event to include; if that is a failed request, the timeline ends with it.
    """
    settings = parse_settings(recording.settings, torch)
    initial = initial_segments(recording, settings, torch)
    reserved = sum(segment.mapped_bytes for segment in initial)
    releases = find_releases(recording, reserved, settings, None)
    builder = _TimelineBuilder(tag_of)
    builder.enter(Phase("before the recording", 0))
    for segment in initial:
        for block in segment.blocks:
            builder.allocate(block.address, block.requested, segment.stream, _BEFORE)
    builder.enter(Phase("recorded", 0))
    last = len(recording.events.rows) - 1 if until is None else until
    for index, (action, address, size, stream) in enumerate(recording.events.rows[: last + 1]):
        if action == ALLOC:
            builder.allocate(address, size, stream, builder.tag(recording.stack(index)))
        elif action in (FREE, FREE_REQUESTED, FREE_COMPLETED):
            builder.free(address)
        elif action == OUT_OF_MEMORY and index == until:
            builder.allocate(_NOWHERE, size, stream, builder.tag(recording.stack(index)))
        elif index in releases and not releases[index].within_allocation:
            builder.events.append(Event(Action.EMPTY_CACHE, 0, 0, 0, 0))
    return Timeline(events=builder.events, tags=list(builder.numbers), phases=builder.phases)


class _TimelineBuilder:
    """Collects events, numbering tensors and tags."""

    def __init__(self, tag_of: Callable[[Any], Tag]) -> None:
        self.events: list[Event] = []
        self.numbers: dict[Tag, int] = {}
        self.phases: list[Phase] = []
        self._tag_of = tag_of
        self._of_stack: dict[int, Tag] = {}  # by identity: torch writes a stack once and reuses it
        self._live: dict[int, int] = {}
        self._tensors = 0

    def enter(self, phase: Phase) -> None:
        self.events.append(Event(Action.PHASE, 0, 0, 0, len(self.phases)))
        self.phases.append(phase)

    def tag(self, stack: Any) -> Tag:
        tag = self._of_stack.get(id(stack))
        if tag is None:
            tag = self._of_stack[id(stack)] = self._tag_of(stack)
        return tag

    def allocate(self, address: int, size: int, stream: int, tag: Tag) -> None:
        number = self.numbers.setdefault(tag, len(self.numbers))
        self._live[address] = self._tensors
        self.events.append(Event(Action.ALLOC, self._tensors, size, stream, number))
        self._tensors += 1

    def free(self, address: int) -> None:
        tensor = self._live.pop(address, None)
        if tensor is not None:
            self.events.append(Event(Action.FREE, tensor, 0, 0, 0))
