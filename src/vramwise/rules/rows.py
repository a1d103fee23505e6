"""Rules with one condition and one sentence, or a few such cases: one row each, many per module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from vramwise.rules.base import Hit, Rule, rule
from vramwise.timeline import MemoryReport
from vramwise.types import Change, Fix, RunSpec, Severity

T = TypeVar("T")
Said: TypeAlias = T | Callable[[RunSpec], T]  # the same for every run, or computed for this one
When: TypeAlias = str | Callable[[RunSpec], object]  # a key that is set and not off, or a condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Report `message` if `when` holds. Omitted fields are the row's; without `when` it always holds."""

    message: Said[str]
    when: When | None = None
    field: str | None = None
    key: Said[str] | None = None
    fix: Said[Fix | None] = None
    change: Said[Change | None] = None
    severity: Severity | None = None


def row(
    *,
    text: str,
    when: When | None = None,
    message: Said[str] = "",
    cases: tuple[Case, ...] = (),
    first_case: bool = False,
    field: str | None = None,
    key: Said[str] | None = None,
    fix: Said[Fix | None] = None,
    change: Said[Change | None] = None,
    severity: Severity = Severity.ERROR,
    **about: Any,
) -> Rule:
    """Return a rule that reports `message`, or each of `cases` that holds, if `when` holds.

    `first_case`: only the first such case. `text` is its title and documentation. `message`, `field`, `key`, `fix` and
    `change` are those of Hit, `about` holds the other arguments of `rule`.
    """
    shared: dict[str, Any] = {"field": field, "key": key, "fix": fix, "change": change}
    listed = cases or (Case(message=message),)

    def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
        if not _holds(when, run):
            return
        for case in listed:
            if _holds(case.when, run):
                yield _hit(case, shared, run)
                if first_case:
                    return

    check.__doc__ = text
    return rule(severity=severity, **about)(check)


def _holds(when: When | None, run: RunSpec) -> bool:
    if isinstance(when, str):
        return bool(run.config.get(when))
    return when is None or bool(when(run))


def _hit(case: Case, shared: dict[str, Any], run: RunSpec) -> Hit:
    said: dict[str, Any] = {"message": case.message, "severity": case.severity}
    for name, of_row in shared.items():
        of_case = getattr(case, name)
        said[name] = of_row if of_case is None else of_case
    return Hit(**{name: value(run) if callable(value) else value for name, value in said.items()})


# What a trainer refuses, as data: the key at fault, and a sentence.
Refusal: TypeAlias = tuple[str, str]


def refused_where(*cases: tuple[object, str, str]) -> Iterator[Refusal]:
    """Yield the key and the sentence of every case whose condition holds."""
    return ((key, sentence) for applies, key, sentence in cases if applies)
