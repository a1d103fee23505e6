"""A prediction as one self-contained page: the profile of its timeline, with the config's findings beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vramwise.allocator.profile import Profile
from vramwise.render.html import render_html
from vramwise.render.outward import unstyle
from vramwise.render.prediction_text import describe, verdict
from vramwise.types import Finding
from vramwise.variants.prediction import Prediction


def prediction_page(prediction: Prediction, profile: Profile, path: str, findings: Sequence[Finding]) -> str:
    """The prediction as one self-contained page: `profile` is its run, the config's findings stand beside it."""
    return render_html(
        title=f"{Path(path).name}: predicted GPU memory",
        verdict=unstyle(verdict(prediction)),
        subtitle=describe(prediction),
        profile=profile,
        report=prediction.shown,
        gpu=prediction.gpu,
        findings=findings,
        assumptions=prediction.assumptions,
        expected_error=str(prediction.expected_error),
    )
