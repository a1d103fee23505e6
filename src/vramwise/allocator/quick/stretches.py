"""Finds identical stretches of a timeline (such as a model's layers), and the part of each that must be played.

Two facts about such an allocator make most of a stretch unnecessary:

- Which memory is free follows from which memory is in use. Temporary tensors, made and freed within a stretch, leave
  nothing behind. A temporary tensor matters only if it is alive when a tensor that matters is made. Tensors that stay
  matter. All others can be left out if they are certain to find memory.
- A temporary tensor is certain to find memory if the largest free block is large enough. `count` tensors in a block
  leave at most `count + 1` gaps. One gap is therefore as large as the request if the block holds the tensors plus
  `count + 1` times the request. For two blocks together it is `count + 2` times. A request that is not certain to find
  memory matters.

The result of playing a stretch into a pool is cached: the same state and stretch lead to the same state. The free block
at the end of the mapped memory is used only if no other block fits. A stretch that needed no new memory therefore does
the same if that end block is larger. This does not hold if the search also considered another block that can grow; in
that case the size of the end must be the same. A shelf that takes over a cached result lists its free blocks only when
the list is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from vramwise.allocator.quick.shelf import BITS, FlatShelf, FreeBlocks, Program
from vramwise.allocator.rounding import MIN_BLOCK, SMALL, SMALL_SEGMENT
from vramwise.timeline import Action, Event, Timeline
from vramwise.units import MIB

_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)

# An upper bound of the bytes by which a new segment exceeds its request.
_SEGMENT_SLACK = 64 * MIB

_NONE = (0, 0, 0)
# The kind of stretches that must be played event by event.
_NOT_WHOLE = 0

_Key = tuple[tuple[int, ...], ...]
_Larger = tuple[tuple[int, int], ...]
# Consecutive failed attempts after which states are no longer compared.
_PATIENCE = 160


class _Result(NamedTuple):
    """The result of playing a stretch.

    `end_before`: the size of the end block before. `exact`: whether the result holds for that size only. `blocks` and
    `end_bytes`: the free blocks and the size of the end block afterwards. `kept`: the blocks that stay in use.
    `larger`: tensors that got more memory than requested, and how much more.
    """

    end_before: int
    exact: bool
    blocks: FreeBlocks
    end_bytes: int
    kept: tuple[int, ...]
    larger: _Larger


class Known:
    """The results of one pool's part of a stretch, by the free blocks before it and the outer blocks that it frees."""

    __slots__ = ("_results", "_vain")

    def __init__(self) -> None:
        self._results: dict[tuple[FreeBlocks, tuple[int, ...]], _Result] = {}
        self._vain = 0

    @property
    def worth_it(self) -> bool:
        """Whether recent attempts have found a known state."""
        return self._vain < _PATIENCE

    def again(self, shelf: FlatShelf, outer: tuple[int, ...], *, counted: bool) -> tuple[int, ...] | None:
        """Apply a known result to the shelf and return the blocks that stay in use, or None if there is none.

        `outer`: the blocks that the stretch frees from before it. `counted`: whether this counts as an attempt.
        """
        blocks, end_bytes = shelf.blocks()
        found = self._results.get((blocks, outer))
        if found is None or found.end_before > end_bytes or (found.exact and found.end_before != end_bytes):
            self._vain += counted
            return None
        self._vain = 0 if counted else self._vain
        shelf.follow(found.blocks, found.end_bytes + end_bytes - found.end_before)
        shelf.larger += found.larger
        return found.kept

    def note(
        self, shelf: FlatShelf, before: tuple[FreeBlocks, int], outer: tuple[int, ...], kept: tuple[int, ...]
    ) -> None:
        """Store the result of a stretch that needed no new memory.

        It is not stored if the end block appeared or disappeared.
        """
        (blocks, end_before), (after, end_bytes) = before, shelf.blocks()
        if bool(end_bytes) == bool(end_before):
            larger = tuple(shelf.larger)
            self._results[blocks, outer] = _Result(end_before, shelf.walked, after, end_bytes, kept, larger)


class Half:
    """One pool's part of a stretch, on one stream.

    Tensors made in the stretch are numbered from the stretch's first. Earlier tensors that it frees are -1, -2 and so
    on. `outer`: the positions of those in the stretch's list `freed`. `kept`: the tensors that it makes and leaves.
    """

    __slots__ = (
        *("_freed", "_lean", "_most", "_needs", "_steps", "kept", "known", "most_new", "outer", "program"),
        *("small", "stream"),
    )

    def __init__(self, small: bool, stream: int) -> None:
        self.small = small
        self.stream = stream
        self.program: list[tuple[int, int]] = []
        self.outer: list[int] = []
        self.kept: list[int] = []
        self.most_new = SMALL_SEGMENT if small else 0  # upper bound of the new memory that it needs
        self._freed: dict[int, int] = {}
        self._needs: dict[int, tuple[int, int, int]] = {}
        self._most = (0, 0, 0)
        self._lean: dict[tuple[int, int, int], Program] = {}
        self._steps: dict[tuple[int, ...], Program] = {}  # the same, by the sizes of the largest free blocks
        self.known = Known()

    def close(self) -> None:
        """Finish the program: compute when each tensor is freed and how much room it needs to be certain of memory."""
        self._freed = {tensor: at for at, (wanted, tensor) in enumerate(self.program) if not wanted}
        self.kept = [tensor for wanted, tensor in self.program if wanted and tensor not in self._freed]
        alive: dict[int, int] = {}
        total = 0
        for wanted, tensor in self.program:
            if not wanted:
                total -= alive.pop(tensor, 0)
                continue
            alive[tensor] = size = wanted >> BITS
            self._needs[tensor] = (
                total + len(alive) * size,
                total + (len(alive) + 1) * size,
                total + (len(alive) + 2) * size,
            )
            total += size
        one, two, three = zip(*self._needs.values(), strict=True) if self._needs else ((0,), (0,), (0,))
        self._most = (max(one), max(two), max(three))

    def steps(self, shelf: FlatShelf) -> Program:
        """Return the steps that must be played on this shelf, given the sizes of its largest free blocks."""
        largest = shelf.largest(3)
        found = self._steps.get(largest)
        if found is None:
            room = self._room(largest)
            if room not in self._lean:
                self._lean[room] = self._find_lean(*room)
            found = self._steps[largest] = self._lean[room]
        return found

    def _room(self, largest: tuple[int, ...]) -> tuple[int, int, int]:
        """Return the total size of the one, two and three largest blocks, rounded and limited to what is needed."""
        most = self._most
        if largest and largest[-1] >= most[0]:
            return most
        one, two, three = accumulate((*_NONE, *largest)[:-4:-1])
        return (_rounded(one, most[0]), _rounded(two, most[1]), _rounded(three, most[2]))

    def _find_lean(self, one: int, two: int, three: int) -> Program:
        """Return the steps of tensors that matter, found from the last request to the first.

        A tensor matters if it stays, if it may find no memory, or if it is alive when one that matters is made.
        """
        freed, program, needs = self._freed, self.program, self._needs
        following = len(program)
        matters = set()
        for at in range(len(program) - 1, -1, -1):
            wanted, tensor = program[at]
            if wanted:
                needed = needs[tensor]
                sure = needed[0] <= one or needed[1] <= two or needed[2] <= three
                if not sure or tensor not in freed or following < freed[tensor]:
                    matters.add(tensor)
                    following = at
        return [step for step in program if step[1] < 0 or step[1] in matters]


def _rounded(size: int, most: int) -> int:
    """Round down to four binary digits, and to `most` at most, so that few different values occur."""
    return most if size >= most else size & 15 << max(0, size.bit_length() - 4)


class Stretch:
    """A stretch of requests and frees, independent of the names of its tensors. Its tensors are numbered from 0.

    - `requests`: the positions of the requests. `number_of`: the index in it of each tensor's request.
    - `allocated`: the bytes allocated after each request, relative to the start of the stretch.
    - `kept`: the tensors that it makes and leaves, as number and position.
    - `freed`: the positions where it frees earlier tensors. `freed_on`: the streams of those tensors.
    - `changes`: the change in allocated bytes of each event.
    - `ends`: the positions where its own tensors are freed, by number.
    - `halves`: the part of each pool and stream.
    """

    __slots__ = (
        *("allocated", "change", "changes", "ends", "freed", "freed_on", "halves", "highest", "kept", "length"),
        *("most_new", "number_of", "on_streams", "requests"),
    )

    def __init__(self, events: Sequence[Event], elsewhere: Mapping[int, int]) -> None:
        """`elsewhere` maps tensors that are not on the first stream to their streams."""
        halves: dict[tuple[bool, int], Half] = {}
        self.requests: list[int] = []
        self.number_of: dict[int, int] = {}
        self.length = len(events)
        first = next(event[1] for event in events if event[0] == _ALLOC)
        made: dict[int, int] = {}
        self.changes: list[int] = []
        self.ends: dict[int, int] = {}
        self.freed: list[int] = []
        self.freed_on: list[int] = []
        for position, (action, tensor, size, stream, _) in enumerate(events):
            rounded = (size + MIN_BLOCK - 1) & -MIN_BLOCK
            small = rounded <= SMALL
            if action != _ALLOC:
                stream = events[made[tensor]][3] if tensor in made else elsewhere.get(tensor, 0)
            half = halves.get((small, stream))
            if half is None:
                half = halves[small, stream] = Half(small, stream)
            self.changes.append(rounded if action == _ALLOC else -rounded)
            if action == _ALLOC:
                made[tensor] = position
                self.number_of[tensor - first] = len(self.requests)
                self.requests.append(position)
                half.program.append((rounded << BITS, tensor - first))
                # any two consecutive small segments serve requests of more than one segment's size
                half.most_new += 2 * rounded if small else rounded + _SEGMENT_SLACK
            elif made.pop(tensor, -1) >= 0:
                self.ends[tensor - first] = position
                half.program.append((0, tensor - first))
            else:
                half.outer.append(len(self.freed))
                half.program.append((0, -len(half.outer)))
                self.freed.append(position)
                self.freed_on.append(stream)
        self.allocated, self.change = self.allocated_with({})
        self.highest = max(self.allocated)
        self.kept = [(tensor - first, position) for tensor, position in made.items()]
        self.halves = [halves[kind] for kind in sorted(halves, key=lambda kind: (kind[1], not kind[0]))]
        for half in self.halves:
            half.close()
        self.most_new = sum(half.most_new for half in self.halves)
        self.on_streams = any(half.stream for half in self.halves)

    def allocated_with(self, more: Mapping[int, int]) -> tuple[list[int], int]:
        """Return the bytes allocated after each request, and at the end. `more`: extra bytes by position."""
        changes = self.changes
        if more:
            changes = changes.copy()
            for position, size in more.items():
                changes[position] += size
        allocated = list(accumulate(changes))
        return [allocated[position] for position in self.requests], allocated[-1]


class Placed(NamedTuple):
    """A stretch at its place in a timeline, with its first tensor and the earlier tensors that it frees."""

    stretch: Stretch
    number: int
    freed: list[int]


class Stretches:
    """The stretches of one timeline, found as they are reached. Can be reused for any number of plays."""

    def __init__(self, timeline: Timeline) -> None:
        self._events = timeline.events
        self._numbers: dict[_Key | None, int] = {None: _NOT_WHOLE}
        self._kinds: dict[int, Stretch | None] = {}
        self._kind_at: dict[tuple[int, int], int] = {}
        self._placed: dict[tuple[int, int], Placed] = {}

    def at(self, start: int, stop: int, elsewhere: Mapping[int, int]) -> Placed | None:
        """Return the stretch between two positions.

        Returns None if it must be played event by event, or if it is reached for the first time and is the first of
        its kind. `elsewhere` maps tensors that are not on the first stream to their streams.
        """
        placed = self._placed.get((start, stop))
        if placed is not None:
            return placed
        kind = self._kind_at.get((start, stop))
        if kind is None:
            key = _key(self._events[start:stop], elsewhere)
            kind = self._kind_at[start, stop] = self._numbers.setdefault(key, len(self._numbers))
            if kind not in self._kinds:
                self._kinds[kind] = None
                return None
        if kind == _NOT_WHOLE:
            return None
        stretch = self._kinds[kind]
        if stretch is None:
            stretch = self._kinds[kind] = Stretch(self._events[start:stop], elsewhere)
        number, *freed = [self._events[start + position][1] for position in (stretch.requests[0], *stretch.freed)]
        placed = self._placed[start, stop] = Placed(stretch, number, freed)
        return placed


def _key(events: Sequence[Event], elsewhere: Mapping[int, int]) -> _Key | None:
    """Return a key that identical stretches share, or None if a stretch must be played event by event.

    Tensor numbers increase from request to request, so a number below the first request's is an earlier tensor.
    """
    actions, tensors, sizes, streams, _ = zip(*events, strict=True)
    if max(actions) > _FREE or min(sizes) <= 0 or _ALLOC not in actions:
        return None
    first = tensors[actions.index(_ALLOC)]
    if elsewhere:
        local = [tensor - first if tensor >= first else -1 - elsewhere.get(tensor, 0) for tensor in tensors]
    else:
        local = [tensor - first if tensor >= first else -1 for tensor in tensors]
    return (actions, sizes, streams, tuple(local))
