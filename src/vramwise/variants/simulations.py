"""Keeps the results of simulations, by their inputs: ghost runs and allocator runs. `simulate.py` does the work.

Variants of a run often request the same bytes in the same order: with another allocator, another text of the same
meaning, or rows padded to the assumed width. This module loads neither the ghost run nor the allocator.
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
    """The cached results for one subject and all its variants, and the effort spent on them."""

    effort: Effort = field(default_factory=Effort)
    ghosts: dict[Hashable, tuple[Timeline, tuple[str, ...]]] = field(default_factory=dict)
    # The timeline is kept alive with its report, so that its id stays unique.
    reports: dict[Hashable, tuple[MemoryReport, Timeline]] = field(default_factory=dict)
    # what is known about the last simulated timeline, which is often simulated again on the card
    last: tuple[Timeline, Stretches] | None = None
