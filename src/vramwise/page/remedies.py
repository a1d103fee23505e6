"""What would make a run fit: a first answer from a few predictions, then the fastest one that a search finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vramwise.render.verdict_text import EFFECTS, effect
from vramwise.subject import Subject
from vramwise.types import Change
from vramwise.units import gib
from vramwise.variants.attempt import Attempt
from vramwise.variants.changes.activations import checkpoint_activations
from vramwise.variants.changes.batches import equal_eval_batch, one_row
from vramwise.variants.changes.dtypes import bf16_base
from vramwise.variants.changes.fused import fuse_loss
from vramwise.variants.effort import DIAGNOSIS, Effort, OutOfEffort
from vramwise.verbs.fitting.ways_out import way_out
from vramwise.verbs.fitting.workshop import SubjectWorkshop

Progress = Callable[[int, int], None]
# The first answer adds these one after the other, until the run fits: what costs least speed comes first.
_TRIED_FIRST = (bf16_base, fuse_loss, equal_eval_batch, checkpoint_activations, one_row)
# What may be spent on it, and on the search.
_FIRST, _SEARCH = 600_000, DIAGNOSIS
_PARTS = 100


def first_remedy(subject: Subject) -> dict[str, Any]:
    """A change that makes it fit and keeps the training result, by a few predictions; it may not be the fastest."""
    own = subject.apart()
    workshop = SubjectWorkshop(subject=own, until=_FIRST)
    try:
        tried = next((one for one in _tried(workshop) if one.prediction and one.prediction.fits), None)
    except OutOfEffort:
        tried = None
    return {"found": False, "further": True} if tried is None else _shown(own, tried)


def best_remedy(subject: Subject, progress: Progress | None) -> dict[str, Any]:
    """The fastest change that makes it fit; `further`: a longer search may still find one."""
    own = subject.apart(Effort() if progress is None else _Told(progress=progress))
    out = way_out(own, most=_SEARCH)
    if out is None or out.candidate is None:
        return {"found": False, "further": out is not None}
    return _shown(own, out.candidate.attempt)


@dataclass(slots=True)
class _Told(Effort):
    """Effort that tells how much of a search is done, in hundredths."""

    progress: Progress = lambda done, of: None
    told: int = 0

    def spend(self, units: int) -> None:
        """Count work, and tell when another hundredth is done."""
        self.spent += units
        done = min(_PARTS, _PARTS * (self.spent - self.run) // _SEARCH) if self.run else 0
        if done > self.told:
            self.told = done
            self.progress(done, _PARTS)


def _tried(workshop: SubjectWorkshop) -> Iterator[Attempt]:
    """The run with one change more each time, simulated; without changes that cannot be made."""
    made: tuple[Change, ...] = ()
    for build in _TRIED_FIRST:
        change = build(workshop.subject.run)
        attempt = None if change is None else workshop.made((*made, change))
        if attempt is not None and attempt.run is not None and not workshop.refusal(attempt):
            made = attempt.changes
            yield workshop.predicted(attempt, on_card=True)


def _shown(subject: Subject, tried: Attempt) -> dict[str, Any]:
    after, prediction = tried.document, tried.prediction
    needed = prediction.needs.highest_reserved_bytes if prediction is not None else 0
    return {
        "found": True,
        "words": tried.words,
        "needed": gib(needed),
        "effect": EFFECTS[effect(tried)],
        "text": after.file_text if after is not None else subject.document.file_text,
        "commands": list(tried.commands),
    }
