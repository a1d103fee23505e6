"""Silences findings that a new config settles, by comments in it that give the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import rules_for
from vramwise.types import Finding


def of_memory(trainer: Trainer, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that concern only memory: their cost is already in the prediction."""
    rules = {rule.id for rule in rules_for(trainer) if rule.costs_memory}
    return [one for one in findings if one.rule in rules]


def of_rounding(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings whose fix changes only rounding: the search could have chosen it."""
    changes = [(one, one.fix.change) for one in findings if one.fix is not None]
    return [one for one, change in changes if change is not None and change.effect == "rounding"]


def with_silenced(comments: Mapping[str, str], findings: Sequence[Finding], why: str) -> dict[str, str]:
    """Return the comments with findings silenced at their keys; the key "" is for the whole file."""
    found = dict(comments)
    for one in findings:
        key = one.key or ""
        silence = f"vramwise: ignore[{one.rule}] {why}"
        found[key] = f"{found[key]}  # {silence}" if found.get(key) else silence
    return found
