"""The CUDA allocator's settings, and when its cache is emptied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """`settings` is the string that the CUDA allocator really gets; "" for torch's defaults."""

    neutral_why: ClassVar[str] = "torch's defaults"

    # `empty_cache_steps`: the cache is emptied every so many steps, before backward. `collect_steps`: it is emptied
    # around evaluations, and after every so many steps (-1: around evaluations only). None: never.
    empty_cache_steps: int | None = field(
        metadata=setting(None, phrase="cache emptied every so many steps", plain="not passed on")
    )
    collect_steps: int | None = field(
        metadata=setting(None, phrase="cache emptied around evaluations", plain="not passed on")
    )
    settings: str = field(metadata=setting("", flat="allocator", ghost=False, compared=False))
