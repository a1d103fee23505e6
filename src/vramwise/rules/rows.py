"""Rules of one condition, one key and one sentence: a row each, without a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from vramwise.rules.base import Hit, Rule, rule
from vramwise.timeline import MemoryReport
from vramwise.types import Change, Fix, RunSpec

T = TypeVar("T")
Said: TypeAlias = T | Callable[[RunSpec], T]  # the same for every run, or computed for this one


def row(
    *,
    text: str,
    when: str | Callable[[RunSpec], object],
    message: Said[str],
    key: Said[str | None] = None,
    fix: Said[Fix | None] = None,
    field: str | None = None,
    change: Said[Change | None] = None,
    **about: Any,
) -> Rule:
    """Return a rule that reports `message` if `when` holds: a key that is set and not off, or a condition.

    `text` is its title and documentation. `message`, `key`, `fix`, `field` and `change` are those of Hit, `about` holds
    the other arguments of `rule`.
    """
    said: dict[str, Any] = {"message": message, "key": key, "fix": fix, "field": field, "change": change}

    def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
        if run.config.get(when) if isinstance(when, str) else when(run):
            yield Hit(**{name: value(run) if callable(value) else value for name, value in said.items()})

    check.__doc__ = text
    return rule(**about)(check)
