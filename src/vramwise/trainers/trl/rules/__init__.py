"""Rules about TRL's own keys, and those that trainers on TrainingArguments share."""

from __future__ import annotations

from vramwise.rules.base import Rule
from vramwise.trainers.arguments.rules import RULES as SHARED
from vramwise.trainers.trl.rules.config import ignored_option, refused_arguments, refused_later
from vramwise.trainers.trl.rules.method import lora_without_peft, single_lora_target
from vramwise.trainers.trl.rules.precision import fp32_base
from vramwise.trainers.trl.rules.shapes import max_length_default, max_length_unlimited

RULES: tuple[Rule, ...] = (
    # shapes
    max_length_unlimited.check,
    max_length_default.check,
    # precision
    fp32_base.check,
    # method
    lora_without_peft.check,
    single_lora_target.check,
    # config
    *SHARED,
    refused_arguments.check,
    refused_later.check,
    ignored_option.check,
)
