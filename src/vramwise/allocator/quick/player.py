"""Plays a timeline into a flat allocator: recurring stretches as a whole, the rest event by event."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from vramwise.allocator.blocks import AllocationError
from vramwise.allocator.player import EVENT_BY_EVENT, PlayedWhole, Player, failure
from vramwise.allocator.quick.allocator import FlatAllocator
from vramwise.allocator.quick.shelf import BITS, FlatShelf, Program
from vramwise.allocator.quick.stretches import Half, Placed, Stretch, Stretches
from vramwise.allocator.repeats import State
from vramwise.allocator.rounding import SMALL
from vramwise.timeline import Action, Timeline

_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)

# Shorter stretches are just as fast event by event.
_FEWEST_EVENTS = 24
# Programs with fewer steps are played without looking for a known result.
_WORTH_KNOWING = 40

_Growths = list[tuple[int, int]]


class QuickPlayer(Player[FlatAllocator]):
    """Plays into flat shelves. A live tensor is one number: its block's size in the high bits, its address in the low.

    The number is 0 for a tensor of 0 bytes.
    """

    def __init__(
        self, timeline: Timeline, allocator: FlatAllocator, apart: frozenset[str], stretches: Stretches | None = None
    ) -> None:
        super().__init__(timeline, allocator, apart)
        self._cuts = timeline.cuts
        self._stretches = stretches or Stretches(timeline)
        # tensors on other streams, which have their own shelves, and their streams
        self._elsewhere: dict[int, int] = {}

    def state(self, carried: Sequence[Any]) -> State:
        """Return everything that determines how events are served."""
        return (*self.allocator.state(), tuple(carried))

    def rename(self, old: int, new: int) -> None:
        """Rename a live tensor. It stays on its stream."""
        super().rename(old, new)
        if old in self._elsewhere:
            self._elsewhere[new] = self._elsewhere.pop(old)

    def play(self, start: int, stop: int, first: bool = True) -> bool:
        """Play these events. Returns False if a request fails. `first`: they have not been played before."""
        cuts = self._cuts
        single = start  # from here on, events are played one by one
        for at in range(bisect_left(cuts, start), bisect_left(cuts, stop)):
            begin, end = cuts[at], cuts[at + 1] if at + 1 < len(cuts) else stop
            if end > stop or end - begin < _FEWEST_EVENTS:
                continue
            if self._elsewhere and single < begin:  # `_elsewhere` must be up to date
                if not self._single(single, begin, first):
                    return False
                single = begin
            placed = self._stretches.at(begin, end, self._elsewhere)
            if placed is None:
                continue
            if single < begin and not self._single(single, begin, first):
                return False
            single = end if self._whole(placed, begin, first) else begin
        return self._single(single, stop, first)

    def _whole(self, placed: Placed, start: int, first: bool) -> bool:
        """Play a stretch as a whole and return True, or change nothing and return False if that is not possible.

        It is not possible if memory runs out, or might run out on several streams. Without expandable segments, it is
        also not possible if both pools need new memory, because the addresses then depend on the order of requests.
        """
        allocator, live = self.allocator, self.result.live
        stretch, number, outer = placed
        elsewhere = self._elsewhere
        if (elsewhere or stretch.on_streams) and [elsewhere.get(tensor, 0) for tensor in outer] != stretch.freed_on:
            return False
        reserved, allocated = allocator.reserved_bytes, allocator.allocated_bytes
        careful = not allocator.expandable or allocator.room() < stretch.most_new
        if careful and stretch.on_streams:
            return False
        saved = allocator.save() if careful else None
        keys = [live[tensor] for tensor in outer]
        kept: list[tuple[int, int]] = []
        grown: _Growths = []
        worked = 0  # the work done until new plain segments were needed; 0 if none were
        allocator.large.larger.clear()
        try:
            for half in stretch.halves:
                more, left = self._half(half, allocator.shelf(half.small, half.stream), keys, notes=not worked)
                if more and worked:
                    raise AllocationError("two pools need new memory")
                grown += more
                kept += left
                worked = self.worked if more and not allocator.expandable else worked
        except AllocationError:
            assert saved is not None
            allocator.restore(saved)
            self.worked = worked or self.worked
            return False
        allocator.careful = False
        if worked:  # counts as much as playing event by event
            self.worked = worked + EVENT_BY_EVENT * stretch.length
        for tensor in outer:
            del live[tensor]
        live.update([(number + tensor, key) for tensor, key in kept])
        if stretch.on_streams:
            self._note_elsewhere(stretch, number, outer)
        growths = sorted([(stretch.number_of[tensor], size) for tensor, size in grown])
        steps, highest, change = stretch.allocated, stretch.highest, stretch.change
        if not allocator.expandable and (larger := self._larger(stretch, start, keys, first)):
            steps, change = stretch.allocated_with(larger)
            highest = max(steps)
        allocator.allocated_bytes += change
        allocator.peak_allocated_bytes = max(allocator.peak_allocated_bytes, allocated + highest)
        if first:
            self.result.wholes.append(PlayedWhole(start, stretch, number, outer))
        if growths or (reserved, allocated + highest) > (self._most_reserved, self._most_allocated):
            self._note(stretch, steps, start, reserved, allocated, growths)
        return True

    def _larger(self, stretch: Stretch, start: int, freed: Sequence[int], first: bool) -> dict[int, int]:
        """Return, by position, how many bytes more than requested are allocated (positive) or freed (negative)."""
        found: dict[int, int] = {}
        for position, key in zip(stretch.freed, freed, strict=True):
            if (key >> BITS) + stretch.changes[position]:
                found[position] = -(key >> BITS) - stretch.changes[position]
        for tensor, size in self.allocator.large.larger:
            position = stretch.requests[stretch.number_of[tensor]]
            found[position] = size
            if tensor in stretch.ends:
                found[stretch.ends[tensor]] = -size
            if first:
                self.result.odd_sizes[start + position] = stretch.changes[position] + size
        return found

    def _note_elsewhere(self, stretch: Stretch, number: int, freed: Sequence[int]) -> None:
        """Update `_elsewhere` with the tensors that a stretch made and freed on other streams."""
        for tensor in freed:
            self._elsewhere.pop(tensor, None)
        for half in stretch.halves:
            if half.stream:
                self._elsewhere.update([(number + tensor, half.stream) for tensor in half.kept])

    def _half(
        self, half: Half, shelf: FlatShelf, freed: Sequence[int], *, notes: bool
    ) -> tuple[_Growths, Iterable[tuple[int, int]]]:
        """Play one pool's part. Returns the tensors that needed new memory, with its size, and the blocks left in use.

        `freed`: the blocks from before the stretch that it frees. `notes`: whether to store the result as known.
        """
        own = {-place: freed[position] for place, position in enumerate(half.outer, 1)}
        # without expandable segments, temporary tensors matter too: they may get more than they request
        plain = not self.allocator.expandable and not half.small
        notes = notes or plain  # their work is counted even if the result is known
        program, known = half.program if plain else half.steps(shelf), half.known
        if len(program) < _WORTH_KNOWING or not known.worth_it:
            growths = self._played(shelf, program, own)
            return growths, own.items()
        before, outer = shelf.blocks(), tuple(own.values())
        kept = known.again(shelf, outer, counted=notes)
        if kept is not None:
            self.worked += len(program) if plain else 0
            return [], zip(half.kept, kept, strict=True)
        shelf.walked = False
        growths = self._played(shelf, program, own)
        if notes and not growths:
            known.note(shelf, before, outer, tuple([own[tensor] for tensor in half.kept]))
        return growths, own.items()

    def _played(self, shelf: FlatShelf, program: Program, own: dict[int, int]) -> _Growths:
        """Play these steps. Returns the tensors that needed new memory, and how much."""
        growths: _Growths = []

        def grow(wanted: int, tensor: int) -> int:
            before = self.allocator.reserved_bytes
            key = shelf.grow(wanted, tensor)
            if key >> BITS != wanted >> BITS:
                shelf.larger.append((tensor, key - wanted >> BITS))
            growths.append((tensor, self.allocator.reserved_bytes - before))
            return key

        self.worked += len(program)
        shelf.play(program, own, grow)
        return growths

    def _note(
        self,
        stretch: Stretch,
        steps: Sequence[int],
        start: int,
        reserved: int,
        allocated: int,
        growths: Sequence[tuple[int, int]],
    ) -> None:
        """Update the peak if the stretch reached a new one.

        `reserved` and `allocated` are the values at its start. `steps`: the allocated bytes after each request.
        """
        begin = 0
        for end, grown in (*growths, (len(steps), 0)):
            if begin < end and reserved >= self._most_reserved:
                highest = max(steps[begin:end])
                if reserved > self._most_reserved or allocated + highest > self._most_allocated:
                    self._most_reserved, self._most_allocated = reserved, allocated + highest
                    at = steps.index(highest, begin)
                    self.result.peak_index, self.result.peak_phase = start + stretch.requests[at], self.marks.phase
            begin, reserved = end, reserved + grown

    def _single(self, start: int, stop: int, first: bool) -> bool:
        """Play these events one by one. Returns False if a request fails."""
        timeline, allocator, play = self.timeline, self.allocator, self.result
        live, elsewhere = play.live, self._elsewhere
        small, large = allocator.small, allocator.large
        most_reserved, most_allocated = self._most_reserved, self._most_allocated
        allocated = allocator.allocated_bytes
        self.worked += EVENT_BY_EVENT * (stop - start)
        for index, (action, tensor, size_bytes, stream, tag) in enumerate(timeline.events[start:stop], start):
            if action == _ALLOC:
                size = (size_bytes + 511) & -512
                shelf = small if size <= SMALL else large
                if stream:
                    elsewhere[tensor] = stream
                    shelf = allocator.shelf(size <= SMALL, stream)
                try:
                    live[tensor] = key = shelf.request(size << BITS) if size > 0 else 0
                except AllocationError:
                    allocator.allocated_bytes = allocated
                    play.out_of_memory = failure(allocator, self.marks.phase, timeline.tags[tag].label, size_bytes)
                    return False
                taken = key >> BITS
                if taken != size and first:
                    play.odd_sizes[index] = taken
                allocated += taken
                if allocated > allocator.peak_allocated_bytes:
                    allocator.peak_allocated_bytes = allocated
                reserved = allocator.reserved_bytes
                if reserved >= most_reserved and (reserved > most_reserved or allocated > most_allocated):
                    most_reserved, most_allocated = reserved, allocated
                    play.peak_index, play.peak_phase = index, self.marks.phase
            elif action == _FREE:
                key = live.pop(tensor)
                size = key >> BITS
                if not size:
                    continue
                shelf = small if size <= SMALL else large
                if elsewhere and tensor in elsewhere:
                    shelf = allocator.shelf(size <= SMALL, elsewhere.pop(tensor))
                shelf.free(key)
                allocated -= size
            else:
                allocator.allocated_bytes = allocated
                self._most_reserved, self._most_allocated = most_reserved, most_allocated
                self.mark(action, tag)
                most_reserved, most_allocated = self._most_reserved, self._most_allocated
        allocator.allocated_bytes = allocated
        self._most_reserved, self._most_allocated = most_reserved, most_allocated
        return True
