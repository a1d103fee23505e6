"""The page of `diagnose --html`: the snapshot's timeline drawn as a prediction's is, with the diagnosis above it."""

from __future__ import annotations

from dataclasses import replace

from vramwise.allocator.profile import profile_timeline
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import AllocatorSettings, TorchVersion, parse_settings
from vramwise.diagnosis.read.frames import Origins
from vramwise.diagnosis.reading import Reading
from vramwise.errors import VramwiseError
from vramwise.recordings.recorded_timeline import timeline_of
from vramwise.recordings.replay import USUAL_TORCH
from vramwise.render.html import render_html
from vramwise.timeline import Timeline


def diagnosis_page(reading: Reading) -> str:
    """The page, as one file that needs no network."""
    diagnosis, recording = reading.diagnosis, reading.recording
    shot = diagnosis.snapshot
    if recording is None or shot is None:
        raise VramwiseError("there is no snapshot to draw")
    torch = recording.torch or USUAL_TORCH
    timeline = timeline_of(recording, torch, until=shot.at, tag_of=Origins(recording).tag)
    settings = parse_settings(recording.settings, torch)
    bound = _bound(timeline, settings, torch, shot.bound_bytes) if shot.failed else None
    report = simulate(timeline, settings, torch=torch, limit_bytes=bound)
    profile = profile_timeline(timeline, settings, torch=torch, limit_bytes=bound)
    causes = [f"{cause.certainty}: {cause.sentence}" for cause in diagnosis.causes]
    return render_html(
        title=shot.name,
        verdict=diagnosis.sentence,
        subtitle=f"{shot.events:,} recorded events, replayed up to the failure",
        profile=profile,
        report=report,
        gpu=None,
        findings=(),
        assumptions=(*causes, *diagnosis.notes, "categories are read off the recorded stacks"),
        expected_error="a recording, not a prediction",
    )


def _bound(timeline: Timeline, settings: AllocatorSettings, torch: TorchVersion, known_bytes: int) -> int:
    """As much memory as there was, so that the drawn run ends with the request that failed.

    Where the recording shows less than all of it, what the requests before that one need is taken for granted.
    """
    before = replace(timeline, events=timeline.events[:-1])
    if simulate(before, settings, torch=torch, limit_bytes=known_bytes).out_of_memory is None:
        return known_bytes
    return max(known_bytes, simulate(before, settings, torch=torch).peak_reserved_bytes)
