"""Rules about LLaMA-Factory's own keys, by topic."""

from __future__ import annotations

from vramwise.rules.base import Rule
from vramwise.trainers.arguments.rules import RULES as ABOUT_ARGUMENTS
from vramwise.trainers.llamafactory.rules.checkpointing import checkpointing_switch_ignored
from vramwise.trainers.llamafactory.rules.config import (
    dpo_import_stops,
    json_not_read,
    nothing_trained,
    refused_by_llamafactory,
)
from vramwise.trainers.llamafactory.rules.eval import held_out_never_evaluated
from vramwise.trainers.llamafactory.rules.loss import weighted_loss_without_logits
from vramwise.trainers.llamafactory.rules.method import option_never_read, quantization_ignored
from vramwise.trainers.llamafactory.rules.optimizer import projected_optimizer_unsupported
from vramwise.trainers.llamafactory.rules.precision import fp32_masters, mixed_types_without_autocast
from vramwise.trainers.llamafactory.rules.shapes import neat_packing_one_row, widths_follow_data
from vramwise.trainers.llamafactory.rules.sharding import deepspeed_without_torchrun

RULES: tuple[Rule, ...] = (
    widths_follow_data.check,
    neat_packing_one_row.check,
    held_out_never_evaluated.check,
    fp32_masters.check,
    mixed_types_without_autocast.check,
    quantization_ignored.check,
    option_never_read.check,
    projected_optimizer_unsupported.check,
    checkpointing_switch_ignored.check,
    weighted_loss_without_logits.check,
    deepspeed_without_torchrun.check,
    nothing_trained.check,
    refused_by_llamafactory.check,
    dpo_import_stops.check,
    json_not_read.check,
    *ABOUT_ARGUMENTS,
)
