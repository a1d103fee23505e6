"""A prediction as one self-contained page: the profile of its timeline, with the config's findings beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click import unstyle

from vramwise.allocator.profile import profile_timeline
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.judging import check_document
from vramwise.render.html import render_html
from vramwise.render.prediction_text import describe, verdict
from vramwise.variants.prediction import Prediction


def prediction_page(prediction: Prediction, path: str) -> str:
    """The prediction as one self-contained page, with the config's findings beside it."""
    run = prediction.run
    settings = parse_settings(run.allocator, run.target.torch)
    bounded = prediction.report is not prediction.needs
    total = prediction.gpu.memory_bytes if bounded and prediction.gpu else None
    limit = prediction.limit_bytes if bounded else None
    outside = prediction.report.outside_bytes

    def under(look: Callable[..., Any]) -> Any:
        torch = run.target.torch
        return look(
            prediction.timeline, settings, torch=torch, total_bytes=total, limit_bytes=limit, outside_bytes=outside
        )

    return render_html(
        title=f"{Path(path).name}: predicted GPU memory",
        verdict=unstyle(verdict(prediction)),
        subtitle=describe(prediction),
        profile=under(profile_timeline),
        report=under(simulate),
        gpu=prediction.gpu,
        findings=check_document(run.config.document, run.target).findings,
        assumptions=prediction.assumptions,
        expected_error=str(prediction.expected_error),
    )
