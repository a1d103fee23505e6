"""Findings that a new config settles, silenced by comments in it, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import rules_for
from vramwise.types import Finding


def of_memory(trainer: Trainer, findings: Sequence[Finding]) -> list[Finding]:
    """Those about memory alone: what they cost is in the prediction."""
    rules = {rule.id for rule in rules_for(trainer) if rule.costs_memory}
    return [one for one in findings if one.rule in rules]


def of_rounding(findings: Sequence[Finding]) -> list[Finding]:
    """Those whose remedy changes no more than rounding: a search has the choice of it."""
    changes = [(one, one.fix.change) for one in findings if one.fix is not None]
    return [one for one, change in changes if change is not None and change.effect == "rounding"]


def with_silenced(comments: Mapping[str, str], findings: Sequence[Finding], why: str) -> dict[str, str]:
    """Comments that also silence findings, each at the key that it is about; "" is about the file as a whole."""
    found = dict(comments)
    for one in findings:
        key = one.key or ""
        silence = f"vramwise: ignore[{one.rule}] {why}"
        found[key] = f"{found[key]}  # {silence}" if found.get(key) else silence
    return found
