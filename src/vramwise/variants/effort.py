"""Counts the work of a command in units that are the same on every machine, and limits searches.

Searches end by this count and not by a clock, so the same config gets the same answer everywhere. A unit is about a
microsecond on a slow machine, so the limits below amount to seconds there.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.timeline import Timeline

# The cost of each kind of work in units, measured with `fit`, `check` and `fix` of the three trainers' example configs.
GHOST_EVENT = 1  # an event that a ghost run writes
EVENTS_READ = 2  # this many events read again or expanded cost one unit; the allocator counts their simulation
KERNEL = 9  # a kernel that is listed and whose time is predicted
SAMPLE = 1  # a sample that is batched
WRITTEN = 1_800  # a change that is written and resolved
CHARACTER, USUAL_FILE = 2, 2_000  # each character of its file beyond the usual size
ASKED = 200  # a question about a variant, even if it was answered before
JUDGED = 1_500  # a variant that the rules check

# What may be spent beyond the run itself: by `predict` on rows that would fit and on remedies, and by a diagnosis on
# its remedy.
REMEDY, DIAGNOSIS = 1_300_000, 6_500_000
# What `check` may spend in addition on the figures of findings.
FIGURES = 900_000
# The limits of `fit`: for the answer, then for alternatives, then for what each word of --allow would give.
ANSWER, BESIDE, OPENED = 14_300_000, 15_600_000, 16_900_000
# What may be spent in addition on finding the smallest card for the run.
CARDS = 2_600_000
NO_LIMIT = 2**62
# If the run has more events than this, each further prediction takes half a second, so none is made for findings or
# remedies.
_MOST_EVENTS = 250_000
# The number of simulations of one search: of `fit` itself, of each further word of --allow, and of a remedy.
MOST_SIMULATIONS, SIMULATIONS_A_WORD, SIMULATIONS_OF_A_REMEDY = 64, 12, 12


def ghost_units(timeline: Timeline) -> int:
    """Return the effort of a ghost run, from the events that it wrote and those that repeats represent."""
    return GHOST_EVENT * len(timeline.events) + events_in(timeline) // EVENTS_READ


def events_in(timeline: Timeline) -> int:
    """Return the number of events of a run; repeated steps count twice."""
    return len(timeline.events) + sum([repeat.end - repeat.start for repeat in timeline.repeats if repeat.steps])


def is_large(timeline: Timeline) -> bool:
    """Return whether further predictions of such a run would take too long."""
    return events_in(timeline) > _MOST_EVENTS


class OutOfEffort(Exception):  # noqa: N818 (it reads as what happened)
    """Raised when a search reaches its limit. Searches catch it and report that they ended early."""


@dataclass(slots=True)
class Effort:
    """The effort spent so far on a subject and all its variants.

    `run`: the effort of the first prediction. `predictions`: how many there were.
    """

    spent: int = 0
    run: int = 0
    predictions: int = 0

    def spend(self, units: int) -> None:
        """Add the units of completed work."""
        self.spent += units

    def predicted(self) -> None:
        """Count a prediction, and record the effort of the first one."""
        self.predictions += 1
        self.run = self.run or self.spent

    def leaves(self, beyond: int, since: int | None = None) -> bool:
        """Return whether less than `beyond` was spent since `since`, or since the first prediction."""
        return self.spent < (self.run if since is None else since) + beyond

    def affords(self, beyond: int, since: int) -> bool:
        """Return whether a figure fits into `beyond`: it takes two predictions, which share half of their work."""
        return self.leaves(beyond - self.run * 3 // 2, since)

    def stop_at(self, limit: int) -> None:
        """Raise OutOfEffort if the limit is reached."""
        if self.spent >= limit:
            raise OutOfEffort
