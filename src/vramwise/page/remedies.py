"""What would make a run fit: a first answer from a few predictions, then the fastest that a search finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vramwise.opening.subject import Subject
from vramwise.render.verdict_text import EFFECTS, effect
from vramwise.units import gib
from vramwise.variants.attempt import Attempt
from vramwise.variants.effort import DIAGNOSIS, Effort
from vramwise.verbs.fitting.ways_out import quick_way_out, way_out

Progress = Callable[[int, int], None]
_PARTS = 100


def first_remedy(subject: Subject) -> dict[str, Any]:
    """Return a change that makes it fit, from the few predictions that `predict` makes; it may not be the fastest."""
    own = subject.apart()
    out = quick_way_out(own)
    if out is None or out.attempt is None:
        return {"found": False, "further": True}
    return _shown(own, out.attempt)


def best_remedy(subject: Subject, progress: Progress | None) -> dict[str, Any]:
    """Return the fastest change that makes it fit; `further`: a longer search may still find one."""
    own = subject.apart(Effort() if progress is None else _Told(progress=progress))
    out = way_out(own, most=DIAGNOSIS)
    if out is None or out.attempt is None:
        return {"found": False, "further": out is not None}
    return _shown(own, out.attempt)


@dataclass(slots=True)
class _Told(Effort):
    """Effort that reports the progress of a search, in hundredths."""

    progress: Progress = lambda done, of: None
    told: int = 0

    def spend(self, units: int) -> None:
        """Count work, and report each further hundredth."""
        self.spent += units
        done = min(_PARTS, _PARTS * (self.spent - self.run) // DIAGNOSIS) if self.run else 0
        if done > self.told:
            self.told = done
            self.progress(done, _PARTS)


def _shown(subject: Subject, tried: Attempt) -> dict[str, Any]:
    after, prediction = tried.writable, tried.prediction
    needed = prediction.needs.highest_reserved_bytes if prediction is not None else 0
    return {
        "found": True,
        "words": tried.words,
        "needed": gib(needed),
        "effect": EFFECTS[effect(tried)],
        "text": after.file_text if after is not None else subject.document.file_text,
        "commands": [*tried.commands, *tried.by_hand],
    }
