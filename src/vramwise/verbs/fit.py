"""`fit`: opens a config, fixes its errors where possible, and fits it to its card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.options import FitOptions, Options, PredictOptions
from vramwise.sources import Source
from vramwise.verbs.fitting.fastest import fit_subject
from vramwise.verbs.fitting.over_cards import strategies
from vramwise.verbs.fitting.repair import repaired
from vramwise.verbs.fitting.report import FitReport
from vramwise.verbs.fitting.shorter_rows import rows_that_fit
from vramwise.verbs.predict import opened


def fit_source(
    source: Source, options: Options, ask: FitOptions, progress: Callable[[int, int], None] | None = None
) -> FitReport:
    """Open a config and fit it to its card.

    `progress` is called with the number of predictions made and an estimate of their total.
    """
    subject = opened(source, options, PredictOptions(model=ask.model, online=ask.online))
    start, repairs = repaired(subject, ask.keep)
    found = fit_subject(
        start,
        allow=ask.allow,
        keep=ask.keep,
        margin_bytes=ask.margin_bytes,
        limit_bytes=ask.limit_bytes,
        maximise=ask.maximise,
        progress=progress,
    )
    prediction = found.original.prediction
    rows = None if prediction is None else rows_that_fit(start, prediction, ask.limit_bytes)
    return FitReport(
        fit=replace(found, repairs=repairs, stops=start.stops, rows_up_to=rows),
        file=subject.document,
        asked=ask.maximise,
        strategies=() if ask.maximise else strategies(start, ask.limit_bytes),
    )
