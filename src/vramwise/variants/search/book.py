"""The results of a search so far: each variant is written, timed and simulated once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Protocol

from vramwise.types import Change, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.bounds import has_no_upper_bound
from vramwise.variants.effort import events_in
from vramwise.variants.search.combinations import Pick, Space, count_changes
from vramwise.variants.search.estimates import Key
from vramwise.variants.search.result import OF_MEMORY, OPEN, TOO_LARGE, weighed
from vramwise.variants.speed import Speed

# The resolution of speed: smaller differences are not claimed, so they do not decide.
_STEP = log(1.01)

UNWRITTEN = "cannot be written in this file"
REFUSED = "are rejected by the trainer"
TWICE = "duplicate another variant"


class Workshop(Protocol):
    """Answers questions about variants of one run; the same question always has the same answer.

    A new question raises OutOfEffort if the search has reached its limit.
    """

    def made(self, changes: Sequence[Change]) -> Attempt:
        """Return the run with the changes, written and resolved but not predicted; `refused` is set if that fails."""
        ...

    def speed(self, run: RunSpec) -> Speed | None:
        """Return the predicted speed, or None."""
        ...

    def least_bytes(self, run: RunSpec) -> int:
        """Return a lower bound of the memory of the run, without simulating it."""
        ...

    def room_bytes(self, run: RunSpec) -> int:
        """Return what the run may reserve: the card without memory outside the allocator, or a limit."""
        ...

    def refusal(self, attempt: Attempt) -> str:
        """Return the error of `check` that the changes cause; "" if there is none."""
        ...

    def predicted(self, attempt: Attempt, *, on_card: bool) -> Attempt:
        """Return the attempt with its prediction; `refused` is set if there is none.

        `on_card`: also simulate what happens if it would reserve more than the card has. That is rarely needed to
        reject a variant, and leaving it out halves the time.
        """
        ...


def grade_of(seconds: float | None) -> int:
    """Return the seconds of a step as a number of 1 % steps; 0 if unknown."""
    return 0 if seconds is None or seconds <= 0 else round(log(seconds) / _STEP)


def settings_of(run: RunSpec) -> Hashable:
    """Return a key for the settings of a run, independent of its file."""
    return tuple(repr(value) for _, value in run.settings())


@dataclass(slots=True, kw_only=True)
class Book:
    """The attempts of one space.

    `margin_bytes`: requested free memory; None: each variant's own error.
    """

    space: Space
    workshop: Workshop
    margin_bytes: int | None = None
    simulated: int = 0
    # total events of all simulations, which their time depends on
    events: int = 0
    _attempts: dict[Pick, Attempt] = field(default_factory=dict)
    _least: dict[Pick, int] = field(default_factory=dict)
    _verdicts: dict[Pick, Attempt] = field(default_factory=dict)
    _refused: dict[Pick, Attempt] = field(default_factory=dict)
    # Variants that were simulated with rows of mixed lengths.
    _held: set[Pick] = field(default_factory=set)
    _runs: dict[Hashable, Pick] = field(default_factory=dict)

    def attempt(self, pick: Pick) -> Attempt:
        """Return the variant, written and resolved; its `run` is None if it cannot be written."""
        if pick not in self._attempts:
            changes = self.space.changes(pick)
            refused = Attempt(changes=(), refused=UNWRITTEN)
            self._attempts[pick] = refused if changes is None else self.workshop.made(changes)
        return self._attempts[pick]

    def speed(self, pick: Pick) -> Speed | None:
        """Return the speed of a variant, or None."""
        run = self.attempt(pick).run
        return None if run is None else self.workshop.speed(run)

    def least_bytes(self, pick: Pick) -> int:
        """Return a lower bound of the memory that a variant needs."""
        if pick not in self._least:
            run = self.attempt(pick).run
            self._least[pick] = 0 if run is None else self.workshop.least_bytes(run)
        return self._least[pick]

    def room_bytes(self, pick: Pick) -> int:
        """Return what a variant may reserve."""
        run = self.attempt(pick).run
        return 0 if run is None else self.workshop.room_bytes(run)

    def too_large(self, pick: Pick) -> bool:
        """Return whether a variant certainly does not fit."""
        return self.least_bytes(pick) > self.room_bytes(pick)

    def left_open(self, pick: Pick) -> bool:
        """Return whether no prediction can say that a variant fits, because one of its features may take any amount."""
        run = self.attempt(pick).run
        return run is not None and has_no_upper_bound(run)

    def key(self, pick: Pick) -> Key | None:
        """Return the sort key of a variant; None if it cannot be written, or not be compared with the original."""
        if self.attempt(pick).run is None:
            return None
        speed = self.speed(pick)
        if speed is None and self.speed(self.space.start) is not None:
            return None
        return grade_of(None if speed is None else speed.step_seconds), count_changes(pick)

    def judged(self, pick: Pick) -> Attempt:
        """Return the variant with its prediction, or with the reason why it needs none."""
        if pick not in self._verdicts:
            attempt = self.attempt(pick)
            fell = self._ruled_out(pick, attempt) or self._certainly_fell(pick)
            if fell:
                self._verdicts[pick] = replace(attempt, speed=self.speed(pick), fell=fell)
            else:
                self._verdicts[pick] = self._simulated(pick)
        return self._verdicts[pick]

    def judged_anyway(self, pick: Pick) -> Attempt:
        """Return the variant with its prediction even if it is known not to fit, to see by how much."""
        known = self.judged(pick)
        if known.prediction is None and known.fell in (TOO_LARGE, OPEN):
            self._verdicts[pick] = self._simulated(pick)
        return self._verdicts[pick]

    def judged_shown(self, pick: Pick) -> Attempt:
        """Return the variant with the prediction that all interfaces show, which includes the outcome on the card."""
        known = self.judged_anyway(pick)
        found = known.prediction
        if found is not None and found.memory_fits is not True and found.report is found.needs:
            self._verdicts[pick] = self._weighed(pick, on_card=True)
        self.holds(pick)
        return self._verdicts[pick]

    def holds(self, pick: Pick) -> bool:
        """Return whether a variant also fits with rows of mixed lengths, which may need more than full ones.

        They are drawn only here: for answers, not for every variant that a search simulates.
        """
        known = self.judged(pick)
        if known.fits and known.prediction is not None and known.prediction.lengths_unknown and pick not in self._held:
            self._held.add(pick)
            self._verdicts[pick] = self._weighed(pick, on_card=True)
        return self._verdicts[pick].fits

    def out_of_memory(self, pick: Pick) -> bool:
        """Return whether a variant does not fit, whatever else speaks against it.

        It stands for variants that need more.
        """
        known = self.judged(pick)
        if known.fell == TWICE and known.run is not None:
            known = self.judged(self._runs[settings_of(known.run)])
        if known.fell == REFUSED:
            if pick not in self._refused:
                self._refused[pick] = self._simulated(pick)
            known = self._refused[pick]
        return known.fell in OF_MEMORY

    def _simulated(self, pick: Pick) -> Attempt:
        self.simulated += 1
        found = self._weighed(pick, on_card=False)
        self.events += 0 if found.prediction is None else events_in(found.prediction.short_timeline)
        return found

    def _weighed(self, pick: Pick, *, on_card: bool) -> Attempt:
        attempt = self.workshop.predicted(self.attempt(pick), on_card=on_card)
        return weighed(attempt, self.speed(pick), self.margin_bytes)

    def _ruled_out(self, pick: Pick, attempt: Attempt) -> str:
        """Return why a variant is rejected whatever it needs; "" if it is not."""
        if attempt.run is None:
            return UNWRITTEN
        if pick == self.space.start:
            return ""
        return self._twin(pick, attempt.run) or (REFUSED if self.workshop.refusal(attempt) else "")

    def _certainly_fell(self, pick: Pick) -> str:
        """Return why a variant is rejected without a simulation; "" if a simulation decides."""
        return TOO_LARGE if self.too_large(pick) else OPEN if self.left_open(pick) else ""

    def _twin(self, pick: Pick, run: RunSpec) -> str:
        """Return TWICE if an earlier variant resolves to the same run; the first one has the fewest changes."""
        first = self._runs.setdefault(settings_of(run), pick)
        return "" if first == pick else TWICE

    def reserved_bytes(self, pick: Pick) -> int:
        """Return the peak of a simulated variant."""
        prediction = self.judged(pick).prediction
        assert prediction is not None
        return prediction.needs.highest_reserved_bytes

    def least_reserved(self) -> Pick | None:
        """Return the simulated variant with the lowest peak, or None."""
        known = [pick for pick, one in self._verdicts.items() if one.prediction is not None]
        return min(known, key=lambda pick: (self.reserved_bytes(pick), pick), default=None)

    def fell(self) -> Iterator[tuple[Pick, str]]:
        """Yield every variant that was looked at and rejected, with the reason."""
        for pick, attempt in self._attempts.items():
            known = self._verdicts.get(pick)
            if fell := UNWRITTEN if attempt.run is None else known.fell if known else "":
                yield pick, fell
