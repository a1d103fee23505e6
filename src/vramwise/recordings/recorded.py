"""A recorded run as a timeline, so that measured and predicted runs share charts and reports; and its allocator
settings.

A recording does not say what memory was for: each allocation is named by its stack, if recorded, and all have one
category, unless the caller derives more from stacks.

The settings become a settings string for torch. Every value is checked before it becomes text: a recording is
untrusted, and the text of a few nested lists can be larger than any memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vramwise.allocator.settings import TorchVersion, parse_settings
from vramwise.errors import VramwiseError
from vramwise.recordings.initial import initial_segments
from vramwise.recordings.ranges import RangeSet
from vramwise.recordings.recording import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OUT_OF_MEMORY,
    SEGMENT_ALLOC,
    SEGMENT_MAP,
    Recording,
    calls_of,
    place_of,
)
from vramwise.recordings.releases import find_releases
from vramwise.timeline import Action, Event, Phase, Tag, Timeline
from vramwise.units import MIB

# The longest valid string has one number for each power of two.
_LONGEST = 1000
_MOST_DIVISIONS = 64
_TOO_LARGE = 1 << 63


def settings_text(settings: Any) -> str:
    """Return the settings string; built from the single settings if it is missing.

    Raises VramwiseError if the settings are malformed.
    """
    if not isinstance(settings, dict):
        raise VramwiseError("the recording's allocator settings are not a mapping")
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        text = settings.get(variable)
        if isinstance(text, str) and text:
            if len(text) > _LONGEST:
                raise VramwiseError(f"the recording's {variable} is longer than {_LONGEST} characters")
            return text.encode("utf-8", "replace").decode("utf-8")
    return ",".join(_options(settings))


def _options(settings: dict[Any, Any]) -> list[str]:
    options = []
    if settings.get("expandable_segments"):
        options.append("expandable_segments:True")
    split = _number(settings, "max_split_size", -1)
    if split > 0:
        options.append(f"max_split_size_mb:{int(split) // MIB}")
    threshold = _number(settings, "garbage_collection_threshold", 0)
    if threshold > 0:
        options.append(f"garbage_collection_threshold:{threshold}")
    divisions = settings.get("roundup_power2_divisions") or {}
    if not isinstance(divisions, dict) or len(divisions) > _MOST_DIVISIONS:
        raise VramwiseError("the recording's roundup_power2_divisions are not a mapping of sizes to divisions")
    if any(divisions.values()):
        options.append("roundup_power2_divisions:[" + ",".join(_division(*item) for item in divisions.items()) + "]")
    return options


def _number(settings: dict[Any, Any], name: str, default: int) -> int | float:
    value = settings.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) >= _TOO_LARGE:
        raise VramwiseError(f"the recording's {name} is not a usable number")
    return value  # type: ignore[no-any-return]


def _division(size: Any, count: Any) -> str:
    if not isinstance(size, (str, int)) or len(str(size)) > 20 or type(count) is not int:
        raise VramwiseError("the recording's roundup_power2_divisions are not a mapping of sizes to divisions")
    return f"{size}:{count}"


def mode_switches(recording: Recording, expandable_at_start: bool) -> dict[int, bool]:
    """Return event → expandable mode from there on, where a program switched it (as RL trainers do around inference).

    Empty for most recordings, which grow in one way only. torch records no such event. The signs: memory grows by
    segment_map only in expandable mode and by segment_alloc only in plain mode, and plain mode serves no request from
    an expandable segment. Between two signs of different modes, the switch is placed right after the last sign of
    expandable mode, or right before the first.
    """
    rows, landmarks = recording.events.rows, recording.events.landmarks
    grows = {rows[at][0] for at in landmarks}
    if not {SEGMENT_ALLOC, SEGMENT_MAP} <= grows:
        return {}
    expandable_memory = RangeSet()
    for segment in recording.segments:
        if segment.expandable:
            expandable_memory.add(segment.address, segment.address + segment.size)
    for at in landmarks:
        action, address, size, _ = rows[at]
        if action == SEGMENT_MAP:
            expandable_memory.add(address, address + size)
    switches: dict[int, bool] = {}
    mode = expandable_at_start
    last_sign = -1
    for at, (action, address, _, _) in enumerate(rows):
        if action == SEGMENT_MAP or (action == ALLOC and address in expandable_memory):
            if not mode:
                switches[at] = mode = True
            last_sign = at
        elif action == SEGMENT_ALLOC and mode:
            switches[last_sign + 1] = mode = False
    return switches


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
