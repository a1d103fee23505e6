"""Replay a recording: check the simulator against it, or find out what other settings would have reserved.

With the recording's own settings, the simulator gets the requests and frees in order, plain segments are placed where
the recording shows them, and after every allocation its reserved bytes must equal the recorded ones. Memory that the
recording releases in the middle of an allocation (a retry, garbage collection, oversize blocks) is released there too,
because the limit that forced it is not in the file; with a given limit, the simulator decides that itself.

With other settings, only requests, frees and calls of empty_cache are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vramwise.allocator import blocks, release
from vramwise.allocator.blocks import AllocationError, Block, Segment
from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.driver import RecordedPlaces
from vramwise.allocator.settings import TorchVersion, parse_settings
from vramwise.errors import VramwiseError
from vramwise.recordings.initial import initial_segments
from vramwise.recordings.recorded import mode_switches
from vramwise.recordings.recording import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OUT_OF_MEMORY,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Recording,
)
from vramwise.recordings.releases import ReleaseRun, find_releases
from vramwise.recordings.restore import allocate_anew, restore

# Assumed for a recording without a version. 2.13 differs in how it chooses between equal blocks.
USUAL_TORCH: TorchVersion = (2, 12)
# A thousand free blocks at each of ten thousand calls of empty_cache: more than any training run has.
MOST_LOOKED_AT = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first allocation after which simulated and recorded reserved bytes differ."""

    event: int  # position among the recording's events, from 0
    requested_bytes: int
    reserved_bytes: int
    recorded_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The request at which the simulated run runs out of memory."""

    event: int
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay. `own_settings`: it ran with the recording's settings."""

    name: str
    device: int
    torch: TorchVersion
    settings: str
    recorded_settings: str
    own_settings: bool
    limit_bytes: int | None
    events: int
    events_left_out: int  # skipped at the start of a long recording
    allocations: int
    mismatches: int
    first_mismatch: Mismatch | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    recorded_peak_reserved_bytes: int
    initial_reserved_bytes: int
    retries: int
    failures_served: int  # requests that failed in the recording and succeed here
    recorded_failures: int
    failure: Failure | None

    @property
    def checks(self) -> bool:
        """Whether the replay had to reproduce the recording exactly, so that a mismatch is a simulator error."""
        return self.own_settings and self.limit_bytes is None


def replay(
    recording: Recording,
    *,
    settings: str | None = None,
    torch: TorchVersion | None = None,
    total_bytes: int | None = None,
    limit_bytes: int | None = None,
) -> ReplayResult:
    """Replay a recording with its own settings, or with others. Raises VramwiseError if it is inconsistent."""

    def run(version: TorchVersion) -> ReplayResult:
        return _Replay(recording, settings, version, total_bytes, limit_bytes).run()

    try:
        result = run(torch or recording.torch or USUAL_TORCH)
        if torch is None is recording.torch and result.checks and result.mismatches:
            newer = run((2, 13))
            result = newer if newer.mismatches < result.mismatches else result
    except (KeyError, IndexError) as error:
        # Overlapping segments, or a block in two places: no allocator can be in such a state.
        raise VramwiseError(f"{recording.name}: the recording is inconsistent and cannot be replayed") from error
    return result


class _Replay:
    """The state of one replay."""

    def __init__(
        self,
        recording: Recording,
        settings: str | None,
        torch: TorchVersion,
        total_bytes: int | None,
        limit_bytes: int | None,
    ) -> None:
        self.recording = recording
        recorded = parse_settings(recording.settings, torch)
        wanted = recorded if settings is None else parse_settings(settings, torch)
        self.own_settings = replace(wanted, text="") == replace(recorded, text="")
        # Without a given limit, memory is released where the recording shows it.
        self.limit_bytes = limit_bytes
        self.follows_releases = self.own_settings and limit_bytes is None
        self.places = RecordedPlaces(by_age=torch >= (2, 13))
        self.allocator = CachingAllocator(
            wanted,
            torch=torch,
            total_bytes=total_bytes,
            limit_bytes=limit_bytes,
            places=self.places if self.own_settings else None,
        )
        self.initial = initial_segments(recording, recorded, torch)
        self.recorded_reserved = self.recorded_peak = sum(segment.mapped_bytes for segment in self.initial)
        self.releases = find_releases(recording, self.recorded_reserved, recorded, limit_bytes)
        self.live: dict[int, Block | None] = {}
        self.segments_at: dict[int, Segment] = {}  # by simulated address: what the recording may release
        self.looked_at = 0  # free blocks examined for release
        self.growing = False  # the recording grew for the next allocation
        self.gave_back = False  # and released memory before that
        self.allocations = self.mismatches = self.failures_served = self.recorded_failures = 0
        self.first_mismatch: Mismatch | None = None

    def run(self) -> ReplayResult:
        """Replay every event in order, until the end or until memory runs out."""
        recording, allocator = self.recording, self.allocator
        initial_reserved = self.recorded_reserved
        failure = self._start() or self._play()
        if failure is not None:
            self._read_on(failure.event + 1)
        return ReplayResult(
            name=recording.name,
            device=recording.device,
            torch=allocator.torch,
            settings=allocator.settings.text if not self.own_settings else recording.settings,
            recorded_settings=recording.settings,
            own_settings=self.own_settings,
            limit_bytes=self.limit_bytes,
            events=recording.events.count,
            events_left_out=recording.events.left_out,
            allocations=self.allocations,
            mismatches=self.mismatches,
            first_mismatch=self.first_mismatch,
            peak_allocated_bytes=allocator.peak_allocated_bytes,
            peak_reserved_bytes=allocator.peak_reserved_bytes,
            recorded_peak_reserved_bytes=self.recorded_peak,
            initial_reserved_bytes=initial_reserved,
            retries=allocator.retries,
            failures_served=self.failures_served,
            recorded_failures=self.recorded_failures,
            failure=failure,
        )

    def _start(self) -> Failure | None:
        try:
            if self.own_settings:
                self.live.update(restore(self.allocator, self.initial, self.places.adopt))
                self.segments_at = {segment.address: segment for segment in self.allocator.segments}
            else:
                self.live.update(allocate_anew(self.allocator, self.initial))
        except AllocationError:
            return self._failure(-1, 0)
        return None

    def _play(self) -> Failure | None:
        allocator, live = self.allocator, self.live
        malloc, free, used = allocator.malloc, allocator.free, blocks.USED
        recorded = self.recorded_reserved
        switches = mode_switches(self.recording, allocator.settings.expandable_segments) if self.own_settings else {}
        allocations = 0
        for index, (action, address, size, stream) in enumerate(self.recording.events.rows):
            if switches and index in switches:
                allocator.change_settings(replace(allocator.settings, expandable_segments=switches[index]))
            if action == ALLOC:
                try:
                    live[address] = self._malloc_grown(size, stream) if self.growing else malloc(size, stream)
                except AllocationError:
                    self.allocations = allocations
                    return self._failure(index, size)
                allocations += 1
                if allocator.reserved_bytes != recorded:
                    self._mismatch(index, size)
            elif action == FREE:
                block = live.pop(address, None)
                if block is not None and block.state == used:
                    free(block)
            else:
                self._rare_event(index, action, address, size, stream)
                recorded = self.recorded_reserved
        self.allocations = allocations
        return None

    def _read_on(self, start: int) -> None:
        """Account for the recording's events after the end of the simulated run."""
        for action, _, size, _ in self.recording.events.rows[start:]:
            if action in (SEGMENT_ALLOC, SEGMENT_MAP):
                self.recorded_reserved += size
                self.recorded_peak = max(self.recorded_peak, self.recorded_reserved)
            elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
                self.recorded_reserved -= size
            elif action == OUT_OF_MEMORY:
                self.recorded_failures += 1

    def _rare_event(self, index: int, action: int, address: int, size: int, stream: int) -> None:
        if action in (SEGMENT_ALLOC, SEGMENT_MAP):
            self.recorded_reserved += size
            self.recorded_peak = max(self.recorded_peak, self.recorded_reserved)
            self.growing = True
            if self.own_settings and action == SEGMENT_ALLOC:
                self.places.announce(address, size)
        elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
            self.recorded_reserved -= size
            self._give_back(index, action, address)
        elif action == FREE_REQUESTED:
            block = self.live.get(address)
            if block is not None and block.state == blocks.USED:
                self.allocator.hold(block)
        elif action == FREE_COMPLETED:
            block = self.live.pop(address, None)
            if block is not None:
                self.allocator.complete(block)
        elif action == OUT_OF_MEMORY:
            self._recorded_failure(size, stream)

    def _give_back(self, index: int, action: int, address: int) -> None:
        run = self.releases.get(index)
        if run is not None:
            self.gave_back = self.follows_releases and run.within_allocation
            if not run.within_allocation or (self.gave_back and run.unmaps) or self._was_not_needed(run):
                # Memory is unmapped only when everything is released.
                self._empty_cache()
        if self.gave_back and action == SEGMENT_FREE:
            self._release_segment(self.places.here.get(address))

    def _empty_cache(self) -> None:
        """Release all cached memory. Raises VramwiseError if that happens too often: it examines every free block."""
        shelves = [shelf for pool in (self.allocator.large, self.allocator.small) for shelf in pool.shelves.values()]
        self.looked_at += len(shelves) + sum(len(shelf.blocks) for shelf in shelves)
        if self.looked_at > MOST_LOOKED_AT:
            raise VramwiseError(
                f"{self.recording.name}: the recording releases memory too often, with {len(shelves):,} streams and "
                f"{len(self.allocator.segments):,} segments: record a shorter part of the run"
            )
        self.allocator.empty_cache()

    def _was_not_needed(self, run: ReleaseRun) -> bool:
        """Return whether the next request fits without this release, which then was a call of empty_cache.

        Only with the recording's settings and a given limit.
        """
        if not self.own_settings or self.follows_releases or run.request is None:
            return False
        _, _, size, stream = run.request
        return self.allocator.finds(size, stream)

    def _release_segment(self, address: int | None) -> None:
        segment = None if address is None else self.segments_at.get(address)
        if segment is None or segment not in self.allocator.segments:
            return
        block = segment.next
        if block.state == blocks.FREE and block.next is segment:
            release.release_segment(self.allocator, block)

    def _malloc_grown(self, size: int, stream: int) -> Block | None:
        """Allocate where the recording grew. If it released memory before, no free block was found."""
        try:
            block = (self.allocator.malloc_new if self.gave_back else self.allocator.malloc)(size, stream)
            self._note_newest_segment()
            return block
        finally:
            self.growing = self.gave_back = False
            self.places.forget()

    def _note_newest_segment(self) -> None:
        newest = next(reversed(self.allocator.segments), None)
        if newest is not None:
            self.segments_at[newest.address] = newest

    def _recorded_failure(self, size: int, stream: int) -> None:
        """Try a request that failed in the recording.

        The program went on without it, so a block from here is freed at once.
        """
        self.recorded_failures += 1
        self.growing = self.gave_back = False
        if self.follows_releases:
            return
        try:
            block = self.allocator.malloc(size, stream)
        except AllocationError:
            return
        self.failures_served += 1
        if block is not None:
            self.allocator.free(block)

    def _mismatch(self, index: int, size: int) -> None:
        self.mismatches += 1
        if self.first_mismatch is None:
            self.first_mismatch = Mismatch(
                event=index,
                requested_bytes=size,
                reserved_bytes=self.allocator.reserved_bytes,
                recorded_reserved_bytes=self.recorded_reserved,
            )

    def _failure(self, index: int, size: int) -> Failure:
        return Failure(
            event=index,
            requested_bytes=size,
            allocated_bytes=self.allocator.allocated_bytes,
            reserved_bytes=self.allocator.reserved_bytes,
        )
