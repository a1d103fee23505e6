"""Ghost runs and allocator runs that were made already, by what decides them.

Variants of a run often ask for the same bytes in the same order: another allocator, another text of the same meaning,
rows padded to the width that was taken for granted anyway. What was worked out once is not worked out again. Only what
is kept is here: `simulate.py` does the work, and loads the ghost run and the allocator for it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vramwise.timeline import MemoryReport, Timeline
from vramwise.variants.effort import Effort

if TYPE_CHECKING:
    from vramwise.allocator.quick.stretches import Stretches


@dataclass(slots=True)
class Simulations:
    """What was worked out so far, for one subject and all its variants, and what that took."""

    effort: Effort = field(default_factory=Effort)
    ghosts: dict[Hashable, tuple[Timeline, tuple[str, ...]]] = field(default_factory=dict)
    # The timeline is kept beside its report, so that its id stays its own.
    reports: dict[Hashable, tuple[MemoryReport, Timeline]] = field(default_factory=dict)
    # what was found out about the timeline simulated last: it is often simulated again, on the card
    last: tuple[Timeline, Stretches] | None = None
