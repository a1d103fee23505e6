"""`fit`: opens a config, fixes its errors where possible, and fits it to its card.

Its report is the fit with the context of the request: the command, what was asked for, and what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vramwise.documents.edit import apply_edits, diff
from vramwise.errors import VramwiseError
from vramwise.notebook.displayed import Displayed
from vramwise.opening.options import FitOptions, Options, PredictOptions
from vramwise.opening.sources import Source
from vramwise.opening.subject import Subject
from vramwise.types import Document, Finding, split_key
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.variants.speed import no_speed
from vramwise.verbs.fast_numbers import against_plain
from vramwise.verbs.fitting.fastest import fit_subject
from vramwise.verbs.fitting.over_cards import Strategy, fastest, strategies
from vramwise.verbs.fitting.shorter_rows import rows_that_fit
from vramwise.verbs.predict import opened


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport(Displayed):
    """A fit for display. `command`: the command that was given. `asked`: the key whose largest value is wanted."""

    fit: Fit
    command: str = ""
    asked: str | None = None
    written: str = ""  # the file that was written
    strategies: tuple[Strategy, ...] = ()  # ways to use several GPUs, all else as the file has it
    file: Document | None = None  # the document as read, before errors in it were fixed
    against_plain: str = ""  # what fp8 or torch.compile costs and brings in the file, as a sentence

    @property
    def best(self) -> Attempt | None:
        """The fastest variant that fits; None if none was found."""
        return self.fit.best

    @property
    def fastest_strategy(self) -> Strategy | None:
        """The fastest way to use several GPUs that fits."""
        return fastest(self.strategies)

    @property
    def document(self) -> Document:
        """The config as it is in the file."""
        document = self.file or self.fit.original.document
        assert document is not None
        return document

    def diff(self, one: Attempt | None) -> str:
        """Return a variant as a unified diff of the file; empty if nothing changes."""
        after = None if one is None else one.document
        return "" if after is None else diff(self.document, after)

    @property
    def no_speed(self) -> str:
        """Why no speed is predicted, as a sentence; "" if it is."""
        run = self.fit.original.run
        return no_speed(run) if run is not None and self.fit.original.speed is None else ""


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
        against_plain=against_plain(start),
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
