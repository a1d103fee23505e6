"""All rules by topic: those for every trainer, and each trainer's own."""

from __future__ import annotations

from functools import cache

from vramwise.rules.base import Rule, by_topic
from vramwise.rules.discovery import common_rules
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import all_trainers


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule by topic, the common ones first. Loads the rules of all trainers."""
    listed = {rule.id: rule for rule in common_rules()}
    for trainer in all_trainers():
        listed |= {rule.id: rule for rule in trainer.rules()}
    return tuple(by_topic(listed.values()))


def rules_for(trainer: Trainer) -> tuple[Rule, ...]:
    """Return the rules that apply to a trainer's file, in the same order."""
    listed = {rule.id: rule for rule in (*common_rules(), *trainer.rules())}
    return tuple(by_topic(listed.values()))
