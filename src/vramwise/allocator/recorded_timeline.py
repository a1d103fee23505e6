"""A recorded run as a timeline, so that measured and predicted runs share charts and reports.

What the memory was for is not in a recording: each allocation is named by the stack it came from, if that was recorded,
and all have one category.
"""

from __future__ import annotations

from typing import Any

from vramwise.allocator.initial import initial_segments
from vramwise.allocator.recording import ALLOC, FREE, FREE_COMPLETED, FREE_REQUESTED, Recording
from vramwise.allocator.releases import find_releases
from vramwise.allocator.settings import TorchVersion, parse_settings
from vramwise.timeline import Action, Event, Phase, Tag, Timeline

CATEGORY = "recorded"


def timeline_of(recording: Recording, torch: TorchVersion) -> Timeline:
    """A recorded run as a timeline: what was there before comes first, and each allocation is named by its stack."""
    settings = parse_settings(recording.settings, torch)
    initial = initial_segments(recording, settings, torch)
    reserved = sum(segment.mapped_bytes for segment in initial)
    releases = find_releases(recording, reserved, settings, None)
    builder = _TimelineBuilder()
    builder.enter(Phase("before the recording", 0))
    for segment in initial:
        for block in segment.blocks:
            builder.allocate(block.address, block.requested, segment.stream, "in use before the recording")
    builder.enter(Phase("recorded", 0))
    for index, (action, address, size, stream) in enumerate(recording.events.rows):
        if action == ALLOC:
            builder.allocate(address, size, stream, _label(recording.stack(index)))
        elif action in (FREE, FREE_REQUESTED, FREE_COMPLETED):
            builder.free(address)
        elif index in releases and not releases[index].within_allocation:
            builder.events.append(Event(Action.EMPTY_CACHE, 0, 0, 0, 0))
    return Timeline(events=builder.events, tags=builder.tags, phases=builder.phases)


class _TimelineBuilder:
    """Collects events, giving tensors numbers and labels a place."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tags: list[Tag] = []
        self.phases: list[Phase] = []
        self._tag_of: dict[str, int] = {}
        self._live: dict[int, int] = {}
        self._tensors = 0

    def enter(self, phase: Phase) -> None:
        self.events.append(Event(Action.PHASE, 0, 0, 0, len(self.phases)))
        self.phases.append(phase)

    def allocate(self, address: int, size: int, stream: int, label: str) -> None:
        tag = self._tag_of.setdefault(label, len(self.tags))
        if tag == len(self.tags):
            self.tags.append(Tag(CATEGORY, label))
        self._live[address] = self._tensors
        self.events.append(Event(Action.ALLOC, self._tensors, size, stream, tag))
        self._tensors += 1

    def free(self, address: int) -> None:
        tensor = self._live.pop(address, None)
        if tensor is not None:
            self.events.append(Event(Action.FREE, tensor, 0, 0, 0))


def _label(stack: Any) -> str:
    """The innermost frame outside torch itself, as `modeling_llama.py:231 forward`."""
    frames = [frame for frame in stack or () if isinstance(frame, dict)] if isinstance(stack, list) else []
    if not frames:
        return "no stack recorded"
    outside = [frame for frame in frames if "/torch/" not in str(frame.get("filename", "")).replace("\\", "/")]
    frame = (outside or frames)[0]
    filename = str(frame.get("filename", "?")).replace("\\", "/").rsplit("/", 1)[-1]
    return f"{filename}:{frame.get('line', '?')} {frame.get('name', '?')}"
