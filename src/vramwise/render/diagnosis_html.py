"""The page of `diagnose --html`: the snapshot's timeline drawn as a prediction's is, with the diagnosis above it."""

from __future__ import annotations

from vramwise.allocator.profile import profile_timeline
from vramwise.allocator.replay import USUAL_TORCH
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.diagnose.reading import Reading
from vramwise.diagnose.recorded import recorded_timeline
from vramwise.errors import VramwiseError
from vramwise.render.html import render_html


def diagnosis_page(reading: Reading) -> str:
    """The page, as one file that needs no network."""
    diagnosis, recording = reading.diagnosis, reading.recording
    shot = diagnosis.snapshot
    if recording is None or shot is None:
        raise VramwiseError("there is no snapshot to draw")
    timeline = recorded_timeline(recording, shot.at)
    torch = recording.torch or USUAL_TORCH
    settings = parse_settings(recording.settings, torch)
    # As much memory as there was at the failure, so that the drawn run ends where the recorded one did.
    bound = shot.reserved_bytes + min(shot.device_free_bytes, shot.requested_bytes - 1) if shot.failed else None
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
