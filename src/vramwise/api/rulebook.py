"""`rules` and `explain` as functions."""

from __future__ import annotations

from vramwise.rules.base import Rule
from vramwise.rules.discovery import find_rule
from vramwise.trainers.rulebook import all_rules


def rules() -> tuple[Rule, ...]:
    """Return all rules, in reading order."""
    return all_rules()


def explain(rule_id: str) -> Rule:
    """Return one rule with its documentation and examples."""
    return find_rule(all_rules(), rule_id)
