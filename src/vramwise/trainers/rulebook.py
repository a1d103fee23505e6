"""All rules of the house: those that hold for every trainer, and each trainer's own, by topic."""

from __future__ import annotations

from vramwise.rules import RULES as COMMON
from vramwise.rules.base import Rule, by_topic
from vramwise.trainers.registry import TRAINERS


def _all() -> tuple[Rule, ...]:
    listed = {rule.id: rule for rule in COMMON}
    for trainer in TRAINERS:
        listed |= {rule.id: rule for rule in trainer.rules()}
    return tuple(by_topic(listed.values()))


# In reading order: topic by topic, the common ones first.
ALL_RULES: tuple[Rule, ...] = _all()
