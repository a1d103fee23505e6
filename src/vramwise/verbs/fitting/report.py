"""A fit with the context of the request: the command, what was asked for, and what was written."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.documents.edit import diff
from vramwise.notebook.displayed import Displayed
from vramwise.types import Document
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.variants.speed import no_speed
from vramwise.verbs.fitting.over_cards import Strategy, fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport(Displayed):
    """A fit for display. `command`: the command that was given. `asked`: the key whose largest value is wanted."""

    fit: Fit
    command: str = ""
    asked: str | None = None
    written: str = ""  # the file that was written
    strategies: tuple[Strategy, ...] = ()  # ways to use several GPUs, all else as the file has it
    file: Document | None = None  # the document as read, before errors in it were fixed

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
