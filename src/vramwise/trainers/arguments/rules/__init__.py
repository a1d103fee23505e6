"""Rules about arguments that every trainer on TrainingArguments shares."""

from __future__ import annotations

from vramwise.rules.base import Rule
from vramwise.trainers.arguments.rules.config import argument_type, unknown_argument

RULES: tuple[Rule, ...] = (argument_type.check, unknown_argument.check)
