"""What a search found: the answer, what else would do, why the others fell, and what would open more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vramwise.displayed import Displayed
from vramwise.types import Finding, GpuSpec, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed
from vramwise.variants.verdict import is_tight


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant of the run. `attempt.prediction` is None where it was never simulated.

    `spare_bytes`: what the card has beyond the reserved memory and the margin; negative: it misses by so much.
    `fell`: why it is no answer, "" where it fits.
    """

    attempt: Attempt
    speed: Speed | None
    spare_bytes: int | None = None
    margin_bytes: int = 0
    fell: str = ""

    @property
    def run(self) -> RunSpec | None:
        """The run with the changes, as its trainer resolves them."""
        return self.attempt.run

    @property
    def prediction(self) -> Prediction | None:
        """What it needs, where that was asked."""
        return self.attempt.prediction

    @property
    def fits(self) -> bool:
        """Whether it is predicted to run, its margin kept and no allocation tried twice."""
        return self.attempt.prediction is not None and not self.fell

    @property
    def reserved_bytes(self) -> int | None:
        """The peak it reserves with memory to spare."""
        prediction = self.attempt.prediction
        return None if prediction is None else prediction.needs.highest_reserved_bytes

    @property
    def tight(self) -> bool:
        """Whether it fits with less to spare than drivers and other processes can take."""
        prediction = self.attempt.prediction
        return self.fits and prediction is not None and is_tight(prediction)

    @property
    def seconds(self) -> float | None:
        """Of an optimizer step; None where the card's rates are not known."""
        return None if self.speed is None else self.speed.step_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Displayed):
    """The answer to "the fastest variant of this config that fits this card".

    `best`: None where nothing fits; the original itself where nothing is faster. `alternatives`: others that fit, the
    frontier between memory and speed, the fastest first. `closest`: where nothing fits, the one that needs least.
    `opened`: what each word of --allow would give where nothing fits without it (or much less speed comes of it).
    `fallen`: why the others are no answer, and how many. `smallest_card`: for the original. `ended_early`: the search
    came to its limit before the answer was certain. `repairs`: errors of the file that were fixed before the search, so
    that `original` is the file with those fixes; `stops`: errors that remain, for which no variant starts.
    """

    original: Candidate
    best: Candidate | None
    alternatives: tuple[Candidate, ...] = ()
    closest: Candidate | None = None
    opened: tuple[tuple[str, Candidate], ...] = ()
    fallen: Mapping[str, int] = field(default_factory=dict)
    smallest_card: GpuSpec | None = None
    considered: int = 0
    simulated: int = 0
    ended_early: bool = False
    repairs: tuple[Finding, ...] = ()
    stops: tuple[Finding, ...] = ()

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the original the answer is; None where that is not known."""
        if self.best is None or not self.best.seconds or not self.original.seconds:
            return None
        return self.original.seconds / self.best.seconds

    @property
    def changed(self) -> bool:
        """Whether the answer is another run than the file's."""
        return self.best is not None and bool(self.best.attempt.changes or self.repairs)
