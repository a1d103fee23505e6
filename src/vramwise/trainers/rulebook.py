"""All rules of the house: those that hold for every trainer, and each trainer's own, by topic."""

from __future__ import annotations

from vramwise.rules import RULES as COMMON
from vramwise.rules.base import TOPICS, Rule
from vramwise.trainers.axolotl.rules import RULES as AXOLOTL

# In reading order: topic by topic, the common ones first.
ALL_RULES: tuple[Rule, ...] = tuple(sorted((*COMMON, *AXOLOTL), key=lambda rule: TOPICS.index(rule.topic)))
