"""`fit`: opens a config, fixes its errors where possible, and fits it to its card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.opening.options import FitOptions, Options, PredictOptions
from vramwise.opening.sources import Source
from vramwise.opening.subject import Subject
from vramwise.types import Finding, split_key
from vramwise.verbs.fitting.fastest import fit_subject
from vramwise.verbs.fitting.over_cards import strategies
from vramwise.verbs.fitting.report import FitReport
from vramwise.verbs.fitting.shorter_rows import rows_that_fit
from vramwise.verbs.predict import opened

# More errors than a real config has.
_MOST_REPAIRS = 16


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


def repaired(subject: Subject, keep: Sequence[str] = ()) -> tuple[Subject, tuple[Finding, ...]]:
    """Return the subject with its fixable errors fixed, and those errors. `keep`: keys that must not change."""
    kept = {split_key(key)[0] for key in keep}
    fixed: list[Finding] = []
    tried: set[tuple[str, str | None]] = set()
    for _ in range(_MOST_REPAIRS):
        left = (one for one in subject.stops if (one.rule, one.key) not in tried)
        # Misspelt keys come first: correcting the name may resolve a missing key.
        found = min(left, key=lambda one: not one.still_runs, default=None)
        if found is None:
            break
        tried.add((found.rule, found.key))
        if found.fix is None or kept & {split_key(edit.key)[0] for edit in found.fix.edits}:
            continue
        try:
            subject = subject.with_document(apply_edits(subject.document, found.fix.edits))
        except VramwiseError:
            continue
        fixed.append(found)
    return subject, tuple(fixed)
