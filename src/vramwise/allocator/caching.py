"""Simulates PyTorch's CUDA caching allocator, from a request for bytes to the bytes reserved from the driver.

Follows CUDACachingAllocator.cpp of torch 2.2 to 2.13 (the default pools; no graph captures, no MemPool). It handles
sizes, streams and settings, not tensors: the caller keeps the block. `malloc` and `free` are the hot path and are
inlined for speed. Growing and releasing are rare; see `expandable` and `release`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from vramwise.allocator import expandable, release
from vramwise.allocator.blocks import (
    ADDRESS_BITS,
    FREE,
    UNMAPPED,
    USED,
    WAITING,
    AllocationError,
    Block,
    Pool,
    Segment,
    Shelf,
    link,
)
from vramwise.allocator.driver import AscendingPlaces, Places, TopDownPlaces
from vramwise.allocator.rounding import MIN_BLOCK, SMALL, round_request, segment_size
from vramwise.allocator.settings import NO_SPLIT_LIMIT, AllocatorSettings, TorchVersion
from vramwise.errors import VramwiseError

NEWEST: TorchVersion = (2, 13)
UNLIMITED = 1 << 60

# Called for every segment that is allocated, mapped, freed or unmapped: (torch's name for it, address, size, stream).
SegmentWatcher = Callable[[str, int, int, int], None]


class CachingAllocator:
    """One device's allocator.

    `total_bytes` is the GPU's memory, of which others use `outside_bytes`. `limit_bytes` is how much the allocator may
    reserve (torch's per-process memory fraction, which the settings can also contain). `places` assigns the addresses
    of plain segments. The default depends on the torch version: up to 2.12 it follows the driver, because addresses
    decide between blocks of the same size.
    """

    def __init__(
        self,
        settings: AllocatorSettings,
        *,
        torch: TorchVersion = NEWEST,
        total_bytes: int | None = None,
        limit_bytes: int | None = None,
        outside_bytes: int = 0,
        places: Places | None = None,
        watch: SegmentWatcher | None = None,
    ) -> None:
        self.torch = torch
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self.retries = 0
        self.segments: dict[Segment, None] = {}  # in order of creation
        self.small = Pool(small=True)
        self.large = Pool(small=False)
        self.ranges = 0  # address ranges handed to expandable segments so far
        self.far_bytes = 0  # address space of those that lie far above the others
        self.places: Places = places or (AscendingPlaces() if torch >= (2, 13) else TopDownPlaces())
        self.watch = watch
        self.total_bytes = total_bytes
        self.capacity_bytes = UNLIMITED if total_bytes is None else total_bytes - outside_bytes
        self._limit_bytes = limit_bytes
        self._waiting: dict[Block, None] = {}  # freed blocks that another stream still uses
        self.change_settings(settings)

    def change_settings(self, settings: AllocatorSettings) -> None:
        """Change the settings, as torch.cuda.memory._set_allocator_settings does.

        Raises VramwiseError for a backend other than torch's native allocator.
        """
        if settings.backend != "native":
            raise VramwiseError(
                f"backend:{settings.backend} leaves memory to the driver's own pool; "
                "only torch's native allocator is simulated"
            )
        self.settings = settings
        limit = self._limit_bytes
        if limit is None and settings.memory_fraction < 1.0 and self.total_bytes is not None:
            limit = int(settings.memory_fraction * self.total_bytes)
        self.limit_bytes = UNLIMITED if limit is None else limit
        self.collects = limit is not None and settings.garbage_collection_threshold > 0.0
        self._expandable = settings.expandable_segments
        self._max_split = settings.max_split_bytes
        self._rounds_by_divisions = any(settings.roundup_divisions)
        self._first_fit_may_not_do = self._max_split < NO_SPLIT_LIMIT or (
            not self._expandable and any(segment.granule for segment in self.segments)
        )

    @property
    def takes_the_first_that_fits(self) -> bool:
        """Whether the free blocks alone determine which of them serves a request, now and later."""
        others = self._rounds_by_divisions or self._first_fit_may_not_do or self.collects or self.watch is not None
        return not others and not self._waiting

    def malloc(self, request_bytes: int, stream: int = 0) -> Block | None:
        """Return a block for a request, or None for 0 bytes. Raises AllocationError if memory runs out."""
        if request_bytes <= 0:
            return None
        if self._rounds_by_divisions:
            size = round_request(request_bytes, self.settings, self.torch)
        else:
            size = (request_bytes + 511) & -512
        pool = self.small if size <= SMALL else self.large
        shelf = pool.shelves.get(stream) or pool.shelf(stream)
        if self.collects:
            pool.searches += 1

        keys, blocks = shelf.keys, shelf.blocks
        at = bisect_left(keys, size << ADDRESS_BITS)
        if at == len(keys):
            return self._malloc_new(request_bytes, size, shelf)
        block = blocks[at]
        if self._first_fit_may_not_do or block.next.state == UNMAPPED:
            at = self._best_fit(shelf, at, size)
            if at < 0:
                return self._malloc_new(request_bytes, size, shelf)
            block = blocks[at]

        rest = block.size - size
        if rest >= MIN_BLOCK and (self._expandable or pool.small or (rest > SMALL and size < self._max_split)):
            # The request gets the low addresses, in a new block. The rest stays on the shelf, at its new position.
            address = block.address
            left, block = block, Block(address, size, USED, block.segment)
            block.prev = before = left.prev
            before.next = left.prev = block
            block.next = left
            left.address = address = address + size
            left.size = rest
            if self.collects:
                left.born = pool.searches
            key = rest << ADDRESS_BITS | address
            if at and keys[at - 1] > key:
                del keys[at], blocks[at]
                at = bisect_left(keys, key, 0, at)
                keys.insert(at, key)
                blocks.insert(at, left)
            else:
                keys[at] = key
        else:
            del keys[at], blocks[at]
            block.state = USED
        allocated = self.allocated_bytes = self.allocated_bytes + block.size
        if allocated > self.peak_allocated_bytes:
            self.peak_allocated_bytes = allocated
        return block

    def free(self, block: Block) -> None:
        """Free a block: merge it with its free neighbours and put it on its shelf."""
        size = block.size
        self.allocated_bytes -= size
        shelf = block.segment.shelf
        keys, blocks = shelf.keys, shelf.blocks
        before, after = block.prev, block.next
        if before.state == FREE:
            at = bisect_left(keys, before.size << ADDRESS_BITS | before.address)
            del keys[at], blocks[at]
            block.address = before.address
            size += before.size
            block.prev = before = before.prev
            before.next = block
        if after.state == FREE:
            at = bisect_left(keys, after.size << ADDRESS_BITS | after.address)
            del keys[at], blocks[at]
            size += after.size
            block.next = after = after.next
            after.prev = block
        block.size = size
        block.state = FREE
        block.born = shelf.pool.searches
        key = size << ADDRESS_BITS | block.address
        at = bisect_left(keys, key)
        keys.insert(at, key)
        blocks.insert(at, block)

    def empty_cache(self) -> None:
        """Return all completely free memory to the driver."""
        release.release_all(self)

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes

    def hold(self, block: Block) -> None:
        """Free a block that another stream still uses. It becomes available with `complete`."""
        self.allocated_bytes -= block.size
        block.state = WAITING
        self._waiting[block] = None

    def complete(self, block: Block) -> None:
        """Make a held block available. Does nothing if it already is, because memory was released in between."""
        if block in self._waiting:
            del self._waiting[block]
            self.allocated_bytes += block.size  # `hold` has subtracted it, and `free` does so again
            self.free(block)

    def complete_all(self) -> None:
        """Make all held blocks available, as after waiting for all streams."""
        for block in [*self._waiting]:
            self.complete(block)

    def _best_fit(self, shelf: Shelf, at: int, size: int) -> int:
        """Return the position of the free block to use, or -1 if none may be used.

        `at` is the position of the first block that is large enough.
        """
        blocks = shelf.blocks
        if self._expandable:
            # The size of an expandable segment's tail includes the room to grow, so that it is used last.
            while at + 1 < len(blocks) and blocks[at].segment.granule:
                if expandable.room(blocks[at + 1]) >= expandable.room(blocks[at]):
                    break
                at += 1
        else:
            while at < len(blocks) and blocks[at].segment.granule:
                at += 1
            if at == len(blocks):
                return -1
        max_split = self._max_split
        bound = max_split if size < max_split else size + self.settings.max_non_split_rounding_bytes
        return at if blocks[at].size < bound else -1

    def finds(self, request_bytes: int, stream: int = 0) -> bool:
        """Return whether a request can be served without new memory."""
        size = round_request(request_bytes, self.settings, self.torch)
        shelf = (self.small if size <= SMALL else self.large).shelf(stream)
        at = shelf.first_of(size)
        return at < len(shelf.blocks) and self._best_fit(shelf, at, size) >= 0

    def malloc_new(self, request_bytes: int, stream: int = 0) -> Block:
        """Serve a request from new memory, without searching the free blocks. Raises AllocationError."""
        size = round_request(request_bytes, self.settings, self.torch)
        pool = self.small if size <= SMALL else self.large
        return self._malloc_new(request_bytes, size, pool.shelf(stream))

    def _malloc_new(self, request_bytes: int, size: int, shelf: Shelf) -> Block:
        block = self._grow_at_any_price(request_bytes, size, shelf)
        rest = block.size - size
        if rest >= MIN_BLOCK and (self._expandable or shelf.pool.small or (rest > SMALL and size < self._max_split)):
            left = Block(block.address + size, rest, FREE, block.segment)
            link(left, block, block.next)
            block.size = size
            shelf.put(left)
        block.state = USED
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def _grow_at_any_price(self, request_bytes: int, size: int, shelf: Shelf) -> Block:
        if self.collects:
            release.collect_garbage(self)
        block = self._grow(size, shelf)
        if block is None and release.release_oversize(self, shelf, size):
            block = self._grow(size, shelf)
        if block is None:
            release.release_all(self)
            self.retries += 1
            block = self._grow(size, shelf)
        if block is None:
            raise AllocationError(f"out of memory: {request_bytes} bytes requested, {self.reserved_bytes} reserved")
        return block

    def _grow(self, size: int, shelf: Shelf) -> Block | None:
        """Return a block of new memory of at least this size, on no shelf, or None if the limit or GPU is exceeded."""
        new_bytes = segment_size(size, self.settings)
        if self.reserved_bytes + new_bytes > self.limit_bytes:
            return None
        if self._expandable:
            return expandable.grow(self, shelf, size)
        if self.reserved_bytes + new_bytes > self.capacity_bytes:
            return None
        segment = Segment(self.places.take(new_bytes), new_bytes, shelf)
        self.segments[segment] = None
        self.reserve("segment_alloc", segment.address, new_bytes, shelf.stream)
        block = Block(segment.address, new_bytes, USED, segment)
        link(block, segment, segment)
        return block

    def reserve(self, action: str, address: int, size: int, stream: int) -> None:
        """Count memory taken from the driver (size > 0) or given back (size < 0), and call the watcher."""
        self.reserved_bytes += size
        if self.reserved_bytes > self.peak_reserved_bytes:
            self.peak_reserved_bytes = self.reserved_bytes
        if self.watch is not None:
            self.watch(action, address, abs(size), stream)
