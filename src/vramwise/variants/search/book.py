"""What was found out about variants so far: each is written, timed and simulated once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from math import log

from vramwise.types import NOT_SETTINGS, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.fitness import TOO_LARGE, weighed
from vramwise.variants.search.result import Candidate
from vramwise.variants.search.space import Pick, Space, count_changes
from vramwise.variants.search.workshop import Workshop
from vramwise.variants.speed import Speed

# Steps of speed: nothing finer is claimed, so nothing finer decides.
_STEP = log(1.01)
_SETTINGS = tuple(one.name for one in fields(RunSpec) if one.name not in NOT_SETTINGS)

UNWRITTEN = "cannot be written in this file"
REFUSED = "are refused by the trainer"
TWICE = "are the same run as another"
# (seconds of a step in steps of 1 %, number of changes): the smaller, the better.
Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A variant that was written and timed; what it needs at least, and what there is."""

    attempt: Attempt
    speed: Speed | None = None
    grade: int = 0
    least_bytes: int = 0
    room_bytes: int = 0
    fell: str = ""

    @property
    def too_large(self) -> bool:
        """Whether it certainly does not fit."""
        return self.least_bytes > self.room_bytes


def grade_of(speed: Speed | None) -> int:
    """Speed in whole steps; the same for all where it is not known."""
    return 0 if speed is None or speed.step_seconds <= 0 else round(log(speed.step_seconds) / _STEP)


def settings_of(run: RunSpec) -> Hashable:
    """What a run is, whatever file it came from."""
    return tuple(repr(getattr(run, name)) for name in _SETTINGS)


@dataclass(slots=True, kw_only=True)
class Book:
    """Entries and candidates of one space. `margin_bytes`: what was asked to stay free, None for each one's error."""

    space: Space
    workshop: Workshop
    margin_bytes: int | None = None
    simulated: int = 0
    _entries: dict[Pick, Entry] = field(default_factory=dict)
    _candidates: dict[Pick, Candidate] = field(default_factory=dict)
    _runs: dict[Hashable, Pick] = field(default_factory=dict)

    def entry(self, pick: Pick) -> Entry:
        """The variant, written, resolved and timed."""
        if pick not in self._entries:
            self._entries[pick] = self._written(pick)
        return self._entries[pick]

    def _written(self, pick: Pick) -> Entry:
        attempt = self.workshop.made(self.space.changes(pick))
        run = attempt.run
        if run is None:
            return Entry(attempt=attempt, fell=UNWRITTEN)
        speed = self.workshop.speed(run)
        return Entry(
            attempt=attempt,
            speed=speed,
            grade=grade_of(speed),
            least_bytes=self.workshop.least_bytes(run),
            room_bytes=self.workshop.room_bytes(run),
        )

    def key(self, pick: Pick) -> Key | None:
        """By what it is ranked; None where it cannot be written."""
        entry = self.entry(pick)
        return None if entry.fell else (entry.grade, count_changes(pick))

    def candidate(self, pick: Pick) -> Candidate:
        """The variant with its prediction, or why it needs none."""
        if pick not in self._candidates:
            entry = self.entry(pick)
            fell = self._judged(pick, entry) or (TOO_LARGE if entry.too_large else "")
            self._candidates[pick] = self._fallen(entry, fell) if fell else self._simulated(entry)
        return self._candidates[pick]

    def candidate_anyway(self, pick: Pick) -> Candidate:
        """The variant with its prediction, even where it is known not to fit: how much it misses by is asked."""
        known = self.candidate(pick)
        entry = self.entry(pick)
        if known.prediction is None and entry.too_large and known.fell == TOO_LARGE:
            self._candidates[pick] = self._simulated(entry)
        return self._candidates[pick]

    def _simulated(self, entry: Entry) -> Candidate:
        self.simulated += 1
        return weighed(self.workshop.predicted(entry.attempt), entry.speed, self.margin_bytes)

    def _fallen(self, entry: Entry, fell: str) -> Candidate:
        return Candidate(attempt=entry.attempt, speed=entry.speed, fell=fell)

    def _judged(self, pick: Pick, entry: Entry) -> str:
        if entry.fell or pick == self.space.start:
            return entry.fell
        return self._twin(pick, entry) or (REFUSED if self.workshop.refusal(entry.attempt) else "")

    def _twin(self, pick: Pick, entry: Entry) -> str:
        """Variants that resolve to one run are one: the first that is asked for has the fewest changes."""
        assert entry.attempt.run is not None
        first = self._runs.setdefault(settings_of(entry.attempt.run), pick)
        return "" if first == pick else TWICE

    def candidates(self) -> Mapping[Pick, Candidate]:
        """All that were looked at so far."""
        return self._candidates

    def unwritten(self) -> int:
        """How many could not be written."""
        return sum(bool(entry.fell) for entry in self._entries.values())
