"""The CUDA allocator's settings, and when its cache is emptied."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """`settings` is the string that the CUDA allocator really gets; "" for torch's defaults."""

    # `empty_cache_steps`: the cache is emptied every so many steps, before backward. `collect_steps`: it is emptied
    # around evaluations, and after every so many steps (-1: around evaluations only). None: never.
    empty_cache_steps: int | None
    collect_steps: int | None
    settings: str = field(metadata={"flat": "allocator"})


NEUTRAL = Allocator(empty_cache_steps=None, collect_steps=None, settings="")
NEUTRAL_WHY = "torch's defaults"
