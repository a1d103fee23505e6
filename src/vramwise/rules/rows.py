"""Rules of one condition and one sentence: a row each, so that a module can hold all those of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from vramwise.rules.base import Hit, Rule, rule
from vramwise.timeline import MemoryReport
from vramwise.types import Change, Fix, RunSpec, Severity

T = TypeVar("T")
Said: TypeAlias = T | Callable[[RunSpec], T]  # the same for every run, or made for this one


def row(
    *,
    text: str,
    when: Callable[[RunSpec], object],
    message: Said[str],
    key: Said[str],
    near: tuple[str, ...] = (),
    fix: Said[Fix | None] = None,
    change: Said[Change | None] = None,
    severity: Severity = Severity.ERROR,
    **about: Any,
) -> Rule:
    """Return a rule that reports `message` at `key` where `when` holds.

    `text` is its title and documentation. `message`, `key`, `near`, `fix` and `change` are those of Hit, `about` holds
    the other arguments of `rule`.
    """
    hit: dict[str, Any] = {"message": message, "key": key, "near": near, "fix": fix, "change": change}

    def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
        if when(run):
            yield Hit(**{name: said(run) if callable(said) else said for name, said in hit.items()})

    check.__doc__ = text
    return rule(severity=severity, **about)(check)
