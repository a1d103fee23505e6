"""Stretches of a timeline that are alike: the same requests in the same order, under other tensor numbers.

A model's layers are, and the timeline says where one may begin (`Timeline.cuts`). From the second time on a stretch is
watched while it is played; then its footprint (see `footprint`) stands for it wherever that can be, pool by pool, and
what is left is played request by request. The two pools have nothing in common but the sum of their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from vramwise.allocator.blocks import Block, Shelf
from vramwise.allocator.footprint import Footprint
from vramwise.allocator.rounding import MIN_BLOCK, SMALL, SMALL_SEGMENT
from vramwise.timeline import Action, Event
from vramwise.units import MIB

_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)

# Shorter stretches are as fast to play.
FEWEST_EVENTS = 24
# Footprints kept of a stretch and a pool, and vain attempts after which only one in some is worth watching.
_KEPT = 6
_VAIN = 4
_LONGEST_PAUSE = 32
# More than a request for a new segment is rounded up by.
_SEGMENT_SLACK = 64 * MIB

Live = dict[int, Block | None]
_Key = tuple[tuple[int, ...], ...]


class Outcome:
    """The sizes of the blocks that a stretch gets, and the bytes allocated after each request, from its start on."""

    __slots__ = ("allocated", "change", "highest", "sizes")

    def __init__(self, stretch: Stretch, taken: dict[int, int]) -> None:
        changes = [taken.get(position, change) for position, change in enumerate(stretch.changes)]
        for position, request in stretch.returned:
            changes[position] = -changes[request]
        allocated = list(accumulate(changes))
        self.sizes = [changes[position] for position in stretch.requests]
        self.allocated = [allocated[position] for position in stretch.requests]
        self.highest = max(self.allocated, default=0)
        self.change = allocated[-1]


class Match(NamedTuple):
    """A footprint that fits: the tensors it frees, and the blocks it touches."""

    footprint: Footprint
    outcome: Outcome
    freed: list[int]
    blocks: list[Block]


class Half:
    """One pool's part of a stretch: its events by position, and the footprints known of it."""

    __slots__ = ("events", "footprints", "freed", "most_new", "vain")

    def __init__(self) -> None:
        self.events: list[int] = []
        self.freed: list[int] = []  # positions of frees of tensors from before the stretch
        self.footprints: list[tuple[Footprint, Outcome]] = []
        self.most_new = 0  # memory it could at most add
        self.vain = 0

    @property
    def watched(self) -> bool:
        """Whether further footprints may be of use."""
        return self.vain <= _VAIN or not self.vain % (2 * _VAIN)

    def match(self, shelf: Shelf, live: Live, events: Sequence[Event]) -> Match | None:
        """A footprint that fits, and how."""
        freed = [events[position][1] for position in self.freed]
        for number, (footprint, outcome) in enumerate(self.footprints):
            blocks = footprint.matched(shelf, live, freed)
            if blocks is not None:
                if number:
                    self.footprints.insert(0, self.footprints.pop(number))
                self.vain = 0
                return Match(footprint, outcome, freed, blocks)
        self.vain += 1
        return None

    def keep(self, footprint: Footprint, outcome: Outcome) -> None:
        """A footprint more; the one not used for longest goes."""
        self.footprints.insert(0, (footprint, outcome))
        del self.footprints[_KEPT:]


class Stretch:
    """A stretch of requests and frees, whatever its tensors are called.

    `requests`: positions of the requests. `changes`: bytes by position, as far as requests alone tell; `returned`:
    where a request's block is freed, and by which position it came; `kept`: the other requests, by number and position;
    `freed`: what was there before.
    """

    __slots__ = (
        *("_outcomes", "changes", "freed", "kept", "large", "length", "number_of", "pause", "requests", "returned"),
        *("small", "vain"),
    )

    def __init__(self, events: Sequence[Event]) -> None:
        self.small, self.large = Half(), Half()
        self.requests: list[int] = []
        self.changes: list[int] = []
        self.returned: list[tuple[int, int]] = []
        self.number_of: dict[int, int] = {}
        self.small.most_new = SMALL_SEGMENT
        self.vain = self.pause = 0
        made: dict[int, int] = {}
        for position, (action, tensor, size, _, _) in enumerate(events):
            rounded = (size + MIN_BLOCK - 1) & -MIN_BLOCK
            half = self.small if rounded <= SMALL else self.large
            half.events.append(position)
            if action == _ALLOC:
                made[tensor] = position
                self.number_of[position] = len(self.requests)
                self.requests.append(position)
                self.changes.append(rounded)
                # of two small segments in a row more than one's worth is asked for
                half.most_new += 2 * rounded if half is self.small else rounded + _SEGMENT_SLACK
            elif tensor in made:
                self.returned.append((position, made[tensor]))
                self.changes.append(-rounded)
            else:
                half.freed.append(position)
                self.changes.append(-rounded)
        returned = {position for _, position in self.returned}
        self.kept = [(number, position) for number, position in enumerate(self.requests) if position not in returned]
        self.freed = [*self.small.freed, *self.large.freed]
        self.length = len(self.changes)
        self._outcomes: dict[tuple[tuple[int, int], ...], Outcome] = {}

    def outcome(self, taken: dict[int, int]) -> Outcome:
        """What comes of it where blocks differ from their requests, by position."""
        key = tuple([(at, change) for at, change in taken.items() if change != self.changes[at]])
        if key not in self._outcomes:
            self._outcomes[key] = Outcome(self, taken)
        return self._outcomes[key]

    def worth_it(self) -> bool:
        """Whether footprints may fit now: after several that did not, ever longer stretches go by before a trial."""
        if self.pause:
            self.pause -= 1
            return False
        return True

    def tried(self, left: int) -> None:
        """So many events had to be played one by one after all."""
        if 2 * left < self.length:
            self.vain = 0
            return
        self.vain += 1
        if self.vain > _VAIN:
            self.pause = min(_LONGEST_PAUSE, 2 ** (self.vain - _VAIN))


class Stretches:
    """The stretches of one timeline as they are met."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._kinds: dict[_Key, Stretch | None] = {}
        self._placed: dict[tuple[int, int], tuple[Stretch, int]] = {}

    def at(self, start: int, stop: int) -> tuple[Stretch | None, int]:
        """The stretch between two positions and the number of its first tensor; None where it is the first such."""
        found = self._placed.get((start, stop))
        if found is not None:
            return found
        key, first = _key(self._events[start:stop])
        if key is None:
            return None, 0
        if key not in self._kinds:
            self._kinds[key] = None
            return None, 0
        stretch = self._kinds[key]
        if stretch is None:
            stretch = self._kinds[key] = Stretch(self._events[start:stop])
        self._placed[start, stop] = stretch, first
        return stretch, first


def _key(events: Sequence[Event]) -> tuple[_Key | None, int]:
    """What stretches that are alike have in common, and the number of the first tensor; None for one to be played.

    Numbers go up from request to request, so that a tensor with a lower one is from before.
    """
    actions, tensors, sizes, streams, _ = zip(*events, strict=True)
    if max(actions) > _FREE or min(sizes) <= 0 or any(streams) or _ALLOC not in actions:
        return None, 0
    first = tensors[actions.index(_ALLOC)]
    return (actions, sizes, tuple([tensor - first if tensor >= first else -1 for tensor in tensors])), first
