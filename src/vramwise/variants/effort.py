"""How much a command has worked out, counted alike on every machine, and how far a search may go.

Searches end by this count and by no clock: the same config gets the same answer everywhere. A unit is about a
microsecond on a slow machine, so the limits below are seconds there.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.timeline import Timeline

# What each kind of work costs, in units: measured over `fit`, `check` and `fix` of the three trainers' example configs.
GHOST_EVENT = 2  # an event that a ghost run writes; copies of layers that stand for many are one
EVENTS_READ = 2  # so many events that are read again or written out; simulating them is counted by the allocator
KERNEL = 9  # a kernel that is listed and timed
SAMPLE = 1  # a sample that is put into a batch
WRITTEN = 1_800  # a change that is written and resolved
CHARACTER, USUAL_FILE = 2, 2_000  # and each character of its file beyond a usual one's
ASKED = 200  # a question about a variant, also one that was answered before
JUDGED = 1_500  # a variant that the rules judge

# What may be spent beyond the run itself: by `predict` on what it says besides (how short rows would fit, what would
# make it fit), and on the remedy of a diagnosis.
REMEDY, DIAGNOSIS = 1_000_000, 5_000_000
# What `check` may spend beyond what was spent before it: on how short rows would fit, then on the figures of findings.
ROWS, FIGURES = 300_000, 700_000
# Up to here `fit` looks for the answer; then for what else would do; then for what each word of --allow would give.
ANSWER, BESIDE, OPENED = 11_000_000, 12_000_000, 13_000_000
# What may be spent on the smallest card that holds the run, beyond what was spent before.
CARDS = 2_000_000
NO_LIMIT = 2**62
# Where the run itself has more events than this, each further prediction takes half a second: none is made for a
# finding or a remedy.
_MOST_EVENTS = 250_000
# Simulations that one search may take: `fit`'s own, each further word of --allow, a remedy that is only named.
MOST_SIMULATIONS, SIMULATIONS_A_WORD, SIMULATIONS_OF_A_REMEDY = 64, 12, 12


def ghost_units(timeline: Timeline) -> int:
    """What a ghost run took, by what it wrote and what that stands for."""
    events = timeline.events
    return GHOST_EVENT * int(getattr(events, "written", len(events))) + events_in(timeline) // EVENTS_READ


def events_in(timeline: Timeline) -> int:
    """The events of a run; of steps that repeat, those of two."""
    return len(timeline.events) + sum([repeat.end - repeat.start for repeat in timeline.repeats if repeat.steps])


def is_large(timeline: Timeline) -> bool:
    """Whether further predictions of such a run would take too long."""
    return events_in(timeline) > _MOST_EVENTS


class OutOfEffort(Exception):  # noqa: N818 (it reads as what happened)
    """A search has come to its limit. Searches catch it themselves and say that they ended early."""


@dataclass(slots=True)
class Effort:
    """What was spent so far on one subject and all its variants, in units; `run`: on the first prediction alone."""

    spent: int = 0
    run: int = 0

    def spend(self, units: int) -> None:
        """Count work that was done."""
        self.spent += units

    def predicted(self) -> None:
        """Count a prediction as made."""
        self.run = self.run or self.spent

    def leaves(self, beyond: int, since: int | None = None) -> bool:
        """Whether less than so much was spent beyond the run itself, or since so much was spent."""
        return self.spent < (self.run if since is None else since) + beyond

    def affords(self, beyond: int, since: int) -> bool:
        """Whether a figure stays within so much: two predictions, which share half of the work with one another."""
        return self.leaves(beyond - self.run * 3 // 2, since)

    def stop_at(self, limit: int) -> None:
        """Raise OutOfEffort where the limit is reached."""
        if self.spent >= limit:
            raise OutOfEffort
