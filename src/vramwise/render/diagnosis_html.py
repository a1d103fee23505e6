"""The page of `diagnose --html`: the snapshot's timeline drawn as a prediction's is, with the diagnosis above it."""

from __future__ import annotations

from vramwise.diagnosis.drawing import Drawing
from vramwise.diagnosis.evidence import Diagnosis
from vramwise.render.html import render_html


def diagnosis_page(diagnosis: Diagnosis, drawing: Drawing) -> str:
    """The page, as one file that needs no network."""
    causes = [f"{cause.certainty}: {cause.sentence}" for cause in diagnosis.causes]
    return render_html(
        title=drawing.snapshot.name,
        verdict=diagnosis.sentence,
        subtitle=f"{drawing.snapshot.events:,} recorded events, replayed up to the failure",
        profile=drawing.profile,
        report=drawing.report,
        gpu=None,
        findings=(),
        assumptions=(*causes, *diagnosis.notes, "categories are read off the recorded stacks"),
        expected_error="a recording, not a prediction",
    )
