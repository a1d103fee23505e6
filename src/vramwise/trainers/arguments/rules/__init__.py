"""Rules about arguments that every trainer on TrainingArguments shares."""

from __future__ import annotations

from vramwise.rules.base import Rule
from vramwise.trainers.arguments.rules.batch import size_below_one
from vramwise.trainers.arguments.rules.config import (
    argument_misread,
    argument_type,
    refused_by_transformers,
    unknown_argument,
)

RULES: tuple[Rule, ...] = (
    size_below_one.check,
    argument_type.check,
    argument_misread.check,
    unknown_argument.check,
    refused_by_transformers.check,
)
