"""What a run would be with some changes: their spelling in the trainer's own words, and the prediction."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.types import Change, Document, Edit, RunSpec
from vramwise.variants.changes.words import in_few_words
from vramwise.variants.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Changes together. `document`, `run`: with them. No prediction: `refused` says why, or none was asked for.

    `by_hand`: what a script computes or takes from its command line, which a person must change.
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
        """The text with all the changes; None where a person must make some: half of them would be another run."""
        return None if self.by_hand else self.document

    @property
    def title(self) -> str:
        """What is changed."""
        return " + ".join(change.title for change in self.changes)

    @property
    def words(self) -> str:
        """What is changed, in a few words."""
        return in_few_words(self.changes)

    @property
    def safe(self) -> bool:
        """Whether training gives the same result with all of it."""
        return all(change.safe for change in self.changes)

    @property
    def fits(self) -> bool:
        """Whether it is predicted to run."""
        return self.prediction is not None and self.prediction.memory_fits is True
