"""What a stretch of requests does to one pool, in a form that can be done again elsewhere without its requests.

Which free block serves a request depends on the free blocks alone: the smallest that is large enough, the lowest of
equals. So a stretch that was played once has a *footprint*: the blocks it touched, what became of their places, and the
sizes that no other free block may have for the same choices to be made. Where a later state has blocks of the same
sizes in the same relations and none that would have been preferred, the outcome is the same at those other places:
temporaries have come and gone, and only what stays is put down. Layers of a model are alike in this way.

The free end of an expandable segment's memory is taken only where nothing else will do, however large it is: any end
with enough room does. Stretches that need new memory have no footprint.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from vramwise.allocator.blocks import ADDRESS_BITS, EDGE, FREE, UNMAPPED, USED, WAITING, Block, Shelf

_BETWEEN = frozenset({USED, EDGE, WAITING})

# How a touched block is found again: as the smallest of at least some size, as the block of a tensor from before the
# stretch that is freed in it, as the free neighbour of such a block, or as the end of the mapped memory.
_FOUND, _FREED, _BEFORE, _AFTER, _END = range(5)

# Above every size: what the end of the mapped memory counts as.
_ENDLESS = 1 << 62


class _Touched(NamedTuple):
    """A block from before the stretch. `at`: the request it was found for, or the freed tensor's place in the order."""

    how: int
    at: int
    size: int


class _Left(NamedTuple):
    """What lies at a place afterwards: a free block, or that of a tensor (counted from the stretch's first)."""

    offset: int
    size: int
    tensor: int


class _Region(NamedTuple):
    """Touched blocks that lie side by side, and what is there afterwards; nothing where that is as it was."""

    blocks: tuple[int, ...]
    after: tuple[_Left, ...]


NOBODY = -1


def _end_of(shelf: Shelf) -> Block | None:
    """The free block at the end of the mapped memory."""
    if not shelf.unmapped:
        return None
    unmapped = shelf.unmapped[-1]
    return unmapped.prev if unmapped.prev.state == FREE and unmapped.next.state == EDGE else None


class Footprint:
    """What a stretch touches of a shelf, on what conditions, and what it leaves."""

    __slots__ = ("_end", "_equals", "_free", "_largest", "_order", "_regions", "_room", "_span", "_touched")

    def __init__(self, tracker: Tracker, live: dict[int, Block | None], first: int) -> None:
        regions, places = tracker.regions()
        names = {live[tensor]: tensor - first for tensor in tracker.made if tensor in live}
        self._touched = [touched for touched, _, _, _ in tracker.touched]
        self._regions = [_Region(blocks, _after(tracker, blocks, names)) for blocks in regions]
        self._span, self._equals = _preferred(tracker, places)
        sizes = [touched.size for touched in self._touched if touched.how not in (_FREED, _END)]
        # the touched free blocks within each span of sizes: there may be no others
        self._free = [len([size for size in sizes if low <= size < high]) for low, high in self._span]
        self._order = _order(tracker, places)
        # the end's size then, and how much of it must be there
        self._end, self._room = tracker.end_size, tracker.end_room
        self._largest = max([found for _, found, _, _ in tracker.chosen if found < _ENDLESS], default=0)

    def put_down(
        self, shelf: Shelf, live: dict[int, Block | None], first: int, freed: list[int], blocks: list[Block]
    ) -> None:
        """Do it once more with the blocks that were matched.

        `first`: the number of the stretch's first tensor; `freed`: the tensors from before it, as they are freed.
        """
        for region in self._regions:
            if region.after:
                held = [blocks[number] for number in region.blocks]
                more = held[-1].size - self._end if self._touched[region.blocks[-1]].how == _END else 0
                _put_down(shelf, live, first, held, region.after, more)
        for tensor in freed:
            del live[tensor]

    def matched(self, shelf: Shelf, live: dict[int, Block | None], freed: list[int]) -> list[Block] | None:
        """The blocks that take the places of those touched; None where not everything is as it must be."""
        keys, shelved = shelf.keys, shelf.blocks
        count = len(keys)
        end = _end_of(shelf)
        if end is not None and end.size + end.next.size <= self._largest + self._room:
            return None  # a block as large as what the end can grow to does not come before it
        blocks: list[Block] = []
        taken: set[Block] = set()
        for how, place, size in self._touched:
            if how == _FOUND:
                at = bisect_left(keys, place << ADDRESS_BITS)
                while at < count and (shelved[at] in taken or shelved[at] is end):
                    at += 1
                if at == count:
                    return None
                block = shelved[at]
            elif how == _END:
                if end is None or end.size <= self._room:
                    return None
                taken.add(end)
                blocks.append(end)
                continue
            else:
                owned = live[freed[place]]
                if owned is None or owned.segment.shelf is not shelf:  # another stream's
                    return None
                block = owned if how == _FREED else owned.prev if how == _BEFORE else owned.next
                if how != _FREED and (block.state != FREE or block in taken or block is end):
                    return None
            if block.size != size:
                return None
            taken.add(block)
            blocks.append(block)
        for (low, high), expected in zip(self._span, self._free, strict=True):
            start = bisect_left(keys, low << ADDRESS_BITS)
            others = bisect_left(keys, high << ADDRESS_BITS, start) - start
            if others - (end is not None and low <= end.size < high) != expected:
                return None
        return blocks if self._placed(shelf, blocks, taken, end) else None

    def _placed(self, shelf: Shelf, blocks: list[Block], taken: set[Block], end: Block | None) -> bool:
        """Whether they lie side by side as they did, apart from the others, and come first among equals."""
        for numbers, _ in self._regions:
            last = blocks[numbers[0]]
            before = last.prev
            if before.state not in _BETWEEN or before in taken:
                return False
            for number in numbers[1:]:
                if last.next is not blocks[number]:
                    return False
                last = blocks[number]
            if last is not end and (last.next.state not in _BETWEEN or last.next in taken):
                return False
        keys, shelved = shelf.keys, shelf.blocks
        for size, number, offset in self._equals:
            bound = blocks[number].address + offset
            at = bisect_left(keys, size << ADDRESS_BITS)
            beyond = size << ADDRESS_BITS | bound
            while at < len(keys) and keys[at] < beyond:
                if shelved[at] not in taken and shelved[at] is not end:
                    return False
                at += 1
        for low, low_offset, high, high_offset in self._order:
            if blocks[low].address + low_offset > blocks[high].address + high_offset:
                return False
        return True


class Tracker:
    """Watches a stretch being played into a shelf, so that its footprint can be told.

    `whole` is False once something happened that has none.
    """

    __slots__ = ("_end_at", "chosen", "derived", "end_room", "end_size", "freed", "made", "shelf", "touched", "whole")

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.whole = True
        end = _end_of(shelf)
        self._end_at, self.end_size = (0, 0) if end is None else (end.address, end.size)
        self.end_room = 0
        self.derived: set[Block] = set()
        # each with its address, its segment's address, and the block before it
        self.touched: list[tuple[_Touched, int, int, Block]] = []
        # request, size and address of what was taken, and the addresses of its equals
        self.chosen: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.made: list[int] = []
        self.freed: list[int] = []

    def before_malloc(self, size: int) -> None:
        """A request is about to be served."""
        keys, shelved = self.shelf.keys, self.shelf.blocks
        at = bisect_left(keys, size << ADDRESS_BITS)
        end = _end_of(self.shelf)
        passed = at < len(keys) and shelved[at] is end
        at += passed
        if at == len(keys):
            self._take_end(size)
            return
        block = shelved[at]
        if block.next.state == UNMAPPED or (passed and end is not None and block.size >= end.size + end.next.size):
            self.whole = False  # memory that can grow in the midst of a segment, or beyond what the end can grow to
            return
        found, equals = block.size, []
        while at + 1 < len(keys) and keys[at + 1] >> ADDRESS_BITS == found:
            at += 1
            if shelved[at] is not end:
                equals.append(shelved[at].address)
        self.chosen.append((size, found, block.address, tuple(equals)))
        if block not in self.derived:
            self._touch(_Touched(_FOUND, size, found), block)

    def _take_end(self, size: int) -> None:
        """Nothing else will do: the end of the mapped memory, or new memory."""
        end = _end_of(self.shelf)
        if end is None or end.size <= size:
            self.whole = False
            return
        if end not in self.derived:
            self._touch(_Touched(_END, 0, end.size), end)
        self.chosen.append((size, _ENDLESS, end.address, ()))
        self.end_room = max(self.end_room, end.address + size - self._end_at)

    def after_malloc(self, tensor: int, block: Block) -> None:
        """It was served with this block; what is left of the one it was cut from follows it."""
        self.made.append(tensor)
        self.derived.add(block)
        if block.next.state == FREE:
            self.derived.add(block.next)

    def before_free(self, tensor: int, block: Block) -> None:
        """A block is about to be freed, and merged with its free neighbours."""
        if block.next.state == UNMAPPED or block.segment.shelf is not self.shelf:
            self.whole = False
        if block in self.derived:
            beside = [neighbour for neighbour in (block.prev, block.next) if neighbour.state == FREE]
            self.whole = self.whole and self.derived.issuperset(beside)
            return
        place = len(self.freed)
        self.freed.append(tensor)
        self._touch(_Touched(_FREED, place, block.size), block)
        for neighbour, how in ((block.prev, _BEFORE), (block.next, _AFTER)):
            if neighbour.state == FREE and neighbour not in self.derived:
                ends = neighbour is _end_of(self.shelf)
                self.whole = self.whole and (ends or neighbour.next.state != UNMAPPED)
                self._touch(_Touched(_END if ends else how, place, neighbour.size), neighbour)

    def _touch(self, touched: _Touched, block: Block) -> None:
        self.touched.append((touched, block.address, block.segment.address, block.prev))
        self.derived.add(block)

    def regions(self) -> tuple[list[tuple[int, ...]], list[tuple[int, int, int]]]:
        """The touched blocks by number, side by side; and of each its address, its end and its number."""
        order = sorted(range(len(self.touched)), key=lambda n: (self.touched[n][2], self.touched[n][1]))
        found: list[list[int]] = []
        places = []
        end, segment = -1, -1
        for number in order:
            touched, address, own, _ = self.touched[number]
            if found and address == end and own == segment:
                found[-1].append(number)
            else:
                found.append([number])
            end, segment = address + touched.size, own
            places.append((address, end, number))
        places.sort()
        return [tuple(numbers) for numbers in found], places


def _after(tracker: Tracker, numbers: tuple[int, ...], names: dict[Block | None, int]) -> tuple[_Left, ...]:
    """What lies in the region now; nothing where it is one free block, as before."""
    first, start, _, before = tracker.touched[numbers[0]]
    end = tracker.touched[numbers[-1]][1] + tracker.touched[numbers[-1]][0].size
    block = before.next
    left = []
    while block.state != EDGE and block.address < end:
        tensor = NOBODY if block.state == FREE else names[block]
        left.append(_Left(block.address - start, block.size, tensor))
        block = block.next
    same = len(numbers) == len(left) == 1 and left[0].tensor == NOBODY and first.how != _FREED
    return () if same else tuple(left)


def _preferred(
    tracker: Tracker, places: list[tuple[int, int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Sizes that would have been preferred (spans, ends exclusive), and of each size taken the highest place taken."""
    spans: list[tuple[int, int]] = []
    for low, high in sorted({(size, found) for size, found, _, _ in tracker.chosen if found > size}):
        if spans and low <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], high))
        else:
            spans.append((low, high))
    highest: dict[int, int] = {}
    for _, found, address, _ in tracker.chosen:
        highest[found] = max(highest.get(found, 0), address)
    outside = {
        size: address
        for size, address in highest.items()
        if size < _ENDLESS and not any(low <= size < high for low, high in spans)
    }
    return spans, [(size, *_place(places, address)) for size, address in outside.items()]


def _order(tracker: Tracker, places: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Of two touched blocks of one size the lower was taken: pairs of places whose order counts."""
    touched = sorted({(address, other) for _, _, address, equals in tracker.chosen for other in equals})
    found = []
    for address, other in touched:
        at = bisect_left(places, (other + 1,)) - 1
        if at < 0 or other >= places[at][1]:
            continue  # never touched: it is among those that must lie higher
        low, high = _place(places, address), _place(places, other)
        if low[0] != high[0]:
            found.append((*low, *high))
    return found


def _place(places: list[tuple[int, int, int]], address: int) -> tuple[int, int]:
    """The touched block in which an address lies, and how far in."""
    start, _, number = places[bisect_left(places, (address + 1,)) - 1]
    return number, address - start


def _put_down(
    shelf: Shelf, live: dict[int, Block | None], first: int, blocks: list[Block], after: tuple[_Left, ...], more: int
) -> None:
    """Replace blocks that lie side by side by others in the same place; the last has so many bytes more."""
    keys, shelved = shelf.keys, shelf.blocks
    start, segment = blocks[0].address, blocks[0].segment
    before, beyond = blocks[0].prev, blocks[-1].next
    for block in blocks:
        if block.state == FREE:
            at = bisect_left(keys, block.size << ADDRESS_BITS | block.address)
            del keys[at], shelved[at]
    searches = shelf.pool.searches
    for offset, size, tensor in after:
        block = Block(start + offset, size, USED, segment)
        block.prev = before
        before.next = block
        before = block
        if tensor == NOBODY:
            block.state = FREE
            block.born = searches
            key = size << ADDRESS_BITS | block.address
            at = bisect_left(keys, key)
            keys.insert(at, key)
            shelved.insert(at, block)
        else:
            live[first + tensor] = block
    before.next = beyond
    beyond.prev = before
    if more:
        shelf.take(before)
        before.size += more
        shelf.put(before)
