"""For a run that does not fit: a change that makes it fit, and the command that shows it as a diff.

It is the search of `fit` over the same axes, ended after a few simulations. If the answer is not certain by then, only
the command is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.opening.subject import Subject
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.variants.effort import REMEDY, SIMULATIONS_OF_A_REMEDY, is_large
from vramwise.variants.search.result import Candidate
from vramwise.verbs.fitting.commands import fit_command
from vramwise.verbs.fitting.fastest import opens
from vramwise.verbs.fitting.proof import weights_alone_bytes
from vramwise.verbs.fitting.workshop import SubjectWorkshop, search_of

# A run that needs this many cards' memory is a typing error, and a search would not help.
_FAR_OFF = 1000
# Words of --allow to try if nothing fits that keeps the training result: the most common ones, the mildest first.
_WORDS = ("8bit-optimizer", "bf16-weights", "lora", "qlora")


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """A variant that fits, or None if a few simulations did not find one.

    `allow`: the words that permit it. `command`: shows it as a diff, or searches further.
    """

    candidate: Candidate | None
    allow: tuple[str, ...] = ()
    command: str = ""

    @property
    def attempt(self) -> Attempt | None:
        """The changes and the prediction of the variant."""
        return None if self.candidate is None else self.candidate.attempt


def way_out(subject: Subject, *, limit_bytes: int | None = None, most: int = REMEDY) -> WayOut | None:
    """Find changes that make a run fit; None if nothing that was tried does. `most`: the effort to spend."""
    if not is_worth_trying(subject, limit_bytes):
        return None
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, until=subject.effort.run + most)
    for allow in ((), *((word,) for word in _WORDS if opens(subject.run, word))):
        if weights_alone_bytes(subject, allow) > workshop.room_bytes(subject.run):
            continue
        search = search_of(workshop, opened(allow))
        search.most = SIMULATIONS_OF_A_REMEDY
        best = search.best()
        if best is not None or search.ended_early:
            certain = None if best is None or search.ended_early else search.book.candidate(best)
            return WayOut(candidate=certain, allow=allow, command=fit_command(subject, limit_bytes, allow))
    return None


def is_worth_trying(subject: Subject, limit_bytes: int | None) -> bool:
    """Return whether a run does not fit and its variants can be simulated quickly."""
    prediction = subject.prediction(limit_bytes=limit_bytes)
    if prediction.memory_fits is not False or is_large(prediction.short_timeline):
        return False
    return prediction.needs.highest_reserved_bytes <= _FAR_OFF * (prediction.capacity_bytes or 0)
