"""What a search found: variants of a run with their speed and their room, the best first, and why the others fell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vramwise.types import GpuSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.speed import Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One variant. `spare_bytes`: capacity − reserved − margin, negative by what it misses; None: not simulated."""

    attempt: Attempt
    speed: Speed | None
    spare_bytes: int | None
    margin_bytes: int = 0
    fell: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The answer of a search."""

    original: Candidate
    best: Candidate | None
    alternatives: tuple[Candidate, ...] = ()
    closest: Candidate | None = None
    opened: tuple[tuple[str, Candidate], ...] = ()
    fallen: Mapping[str, int] = field(default_factory=dict)
    smallest_card: GpuSpec | None = None
    considered: int = 0
    simulated: int = 0
