"""`fit`: a config opened and fitted to its card, with what `check` has against the file."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.options import FitOptions, Options, PredictOptions
from vramwise.subject import Source
from vramwise.types import Severity
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.fitting.fastest import fit_subject
from vramwise.verbs.fitting.report import FitReport
from vramwise.verbs.predict import opened


def fit_source(
    source: Source, options: Options, ask: FitOptions, progress: Callable[[int, int], None] | None = None
) -> FitReport:
    """Open a config and fit it to its card.

    `progress` is told how many predictions were made, and of how many it takes about.
    """
    subject = opened(source, options, PredictOptions(model=ask.model, online=ask.online))
    found = fit_subject(
        subject,
        allow=ask.allow,
        keep=ask.keep,
        margin_bytes=ask.margin_bytes,
        limit_bytes=ask.limit_bytes,
        maximise=ask.maximise,
        progress=progress,
    )
    errors = [one.rule for one in check_subject(subject, Policy()).findings if one.severity is Severity.ERROR]
    return FitReport(fit=found, asked=ask.maximise, errors=tuple(dict.fromkeys(errors)))
