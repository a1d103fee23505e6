"""The data for `diagnose`'s page: the recorded run up to its failure, simulated again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vramwise.allocator.profile import Profile, profile_timeline
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import AllocatorSettings, TorchVersion, parse_settings
from vramwise.diagnosis.read.frames import Origins
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.diagnosis.reading import Reading
from vramwise.errors import VramwiseError
from vramwise.recordings.recorded import timeline_of
from vramwise.recordings.replay import USUAL_TORCH
from vramwise.timeline import MemoryReport, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A recorded run in the form that charts need, with its facts."""

    snapshot: SnapshotFacts
    profile: Profile
    report: MemoryReport  # at the failure or the peak of allocated memory, as in the facts
    most_reserved_bytes: int  # the peak over the whole run: a failing request makes the allocator release what it can


def draw(reading: Reading) -> Drawing:
    """Return the drawing of the recording that a diagnosis used. Raises VramwiseError without a snapshot."""
    recording, shot = reading.recording, reading.diagnosis.snapshot
    if recording is None or shot is None:
        raise VramwiseError("no snapshot to draw")
    torch = recording.torch or USUAL_TORCH
    timeline = timeline_of(recording, torch, until=shot.at, tag_of=Origins(recording).tag)
    settings = parse_settings(recording.settings, torch)
    bound = _bound(timeline, settings, torch, shot.bound_bytes) if shot.failed else None
    report = simulate(timeline, settings, torch=torch, limit_bytes=bound)
    return Drawing(
        snapshot=shot,
        profile=profile_timeline(timeline, settings, torch=torch, limit_bytes=bound),
        report=_as_recorded(report, shot),
        most_reserved_bytes=report.peak_reserved_bytes,
    )


def _as_recorded(report: MemoryReport, shot: SnapshotFacts) -> MemoryReport:
    """Return the report with the recording's figures at the moment of interest."""
    return replace(
        report,
        peak_allocated_bytes=shot.allocated_bytes,
        peak_reserved_bytes=shot.reserved_bytes,
        breakdown_bytes=dict(shot.by_category),
    )


def _bound(timeline: Timeline, settings: AllocatorSettings, torch: TorchVersion, known_bytes: int) -> int:
    """Return the memory limit with which the drawn run ends at the request that failed.

    If the recording does not show all memory, the limit is raised to what the earlier requests need.
    """
    before = replace(timeline, events=timeline.events[:-1])
    if simulate(before, settings, torch=torch, limit_bytes=known_bytes).out_of_memory is None:
        return known_bytes
    return max(known_bytes, simulate(before, settings, torch=torch).peak_reserved_bytes)
