"""A run with some changes: the trainer's edits for them, and the prediction."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.types import Change, Document, Edit, RunSpec
from vramwise.variants.changes.words import in_few_words
from vramwise.variants.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Changes applied together. `document` and `run` include them.

    Without a prediction, `refused` says why, or none was requested. `by_hand`: values that a script computes or takes
    from its command line, which the user must change.
    """

    changes: tuple[Change, ...]
    edits: tuple[Edit, ...] = ()
    commands: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    document: Document | None = None
    run: RunSpec | None = None
    prediction: Prediction | None = None
    refused: str = ""

    @property
    def writable(self) -> Document | None:
        """The text with all changes; None if the user must make some of them, since a part would be another run."""
        return None if self.by_hand else self.document

    @property
    def title(self) -> str:
        """The titles of the changes."""
        return " + ".join(change.title for change in self.changes)

    @property
    def words(self) -> str:
        """The changes in a few words."""
        return in_few_words(self.changes)

    @property
    def safe(self) -> bool:
        """Whether training gives the same result with all changes."""
        return all(change.safe for change in self.changes)

    @property
    def fits(self) -> bool:
        """Whether it is predicted to fit."""
        return self.prediction is not None and self.prediction.memory_fits is True
