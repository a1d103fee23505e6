"""A prediction as one self-contained page: the profile of its timeline and the config's findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vramwise.allocator.profile import Profile
from vramwise.render.doubt_text import error_lines
from vramwise.render.html import render_html
from vramwise.render.outward import unstyle
from vramwise.render.prediction_text import describe, speed_notes
from vramwise.render.speed_text import speed_figures
from vramwise.render.verdict_text import reasons, sentence, state_of, ways_out
from vramwise.types import Finding
from vramwise.variants.prediction import Prediction
from vramwise.verbs.predict import Answer


def prediction_page(
    prediction: Prediction,
    profile: Profile,
    path: str,
    findings: Sequence[Finding],
    answer: Answer | None = None,
) -> str:
    """Return the prediction as one self-contained page.

    `profile` is the profile of its run; `findings` are those of the config.
    """
    verdict = answer.verdict if answer else prediction.verdict()
    state = state_of(verdict.kind)
    head = [sentence(prediction, verdict), *reasons(prediction, verdict)]
    expected, *rests_on = [unstyle(line).strip().removeprefix("Expected error: ") for line in error_lines(prediction)]
    return render_html(
        title=f"{Path(path).name}: predicted GPU memory",
        verdict=head,
        state=state,
        ways_out=[unstyle(line).strip() for line in ways_out(answer)] if answer else [],
        subtitle=describe(prediction),
        profile=profile,
        report=prediction.shown,
        gpu=prediction.gpu,
        findings=findings,
        assumptions=[*prediction.assumptions, *(f"speed: {note}" for note in speed_notes(answer)), *rests_on],
        expected_error=expected,
        further=speed_figures(answer.speed, answer.duration) if answer and answer.speed else (),
    )
