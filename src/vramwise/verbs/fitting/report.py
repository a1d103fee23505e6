"""A fit with what its door knows besides: the command that was given, what was asked for, what was written."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.documents.edit import diff
from vramwise.types import Document
from vramwise.variants.search.result import Candidate, Fit
from vramwise.variants.speed import no_speed
from vramwise.verbs.fitting.over_cards import Strategy, fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """What is shown of a fit. `command`: the command again; `asked`: the key whose largest value was asked for."""

    fit: Fit
    command: str = ""
    asked: str | None = None
    written: str = ""  # the file that was written
    strategies: tuple[Strategy, ...] = ()  # ways to use several GPUs, all else as the file has it
    file: Document | None = None  # what was read, where errors in it were fixed before the search

    @property
    def fastest_strategy(self) -> Strategy | None:
        """Of the ways to use several GPUs the fastest that fits."""
        return fastest(self.strategies)

    @property
    def document(self) -> Document:
        """The config as it is in the file."""
        document = self.file or self.fit.original.attempt.document
        assert document is not None
        return document

    def diff(self, one: Candidate | None) -> str:
        """A variant as a unified diff of the file; empty where nothing in it changes."""
        after = None if one is None else one.attempt.document
        return "" if after is None else diff(self.document, after)

    @property
    def no_speed(self) -> str:
        """Why nothing is said of speed, as a sentence; "" where it is."""
        run = self.fit.original.run
        return no_speed(run) if run is not None and self.fit.original.speed is None else ""
