"""The rules that hold for every trainer, one a file in a folder a topic: a new rule is one file and one line here.

They read RunSpec and MemoryReport alone; a trainer's own rules live in its room. `vramwise.rules` is this room and,
called, the verb: `vramwise.rules()` gives all rules, the trainers' own among them.
"""

from __future__ import annotations

import sys
from types import ModuleType

from vramwise.rules.allocator import allocator_not_expandable, does_not_fit, tight_fit
from vramwise.rules.attention import (
    attention_torch_too_old,
    attention_unsupported_card,
    eager_attention_quadratic,
    flash_attention_broken,
    packing_leaks_across_samples,
    packing_sdpa_bf16,
)
from vramwise.rules.base import Rule
from vramwise.rules.checkpointing import checkpointing_unset
from vramwise.rules.config import duplicate_key, output_in_model_folder
from vramwise.rules.eval import eval_batch_differs, eval_peak
from vramwise.rules.loss import chunked_loss_holds_logits, logits_dominate
from vramwise.rules.method import modules_to_save_full_copies, reference_model_in_memory
from vramwise.rules.optimizer import optimizer_step_peak, optimizer_torch_too_old
from vramwise.rules.precision import (
    bf16_left_off,
    bf16_unsupported,
    fp8_unsupported_card,
    fp8_without_compile,
    fp16_full_finetune,
    fp32_weights,
)
from vramwise.rules.shapes import unpadded_sequences
from vramwise.rules.sharding import fsdp_accumulates_whole_gradients, full_state_dict_gather

RULES: tuple[Rule, ...] = (
    # shapes
    unpadded_sequences.check,
    # eval
    eval_batch_differs.check,
    eval_peak.check,
    # precision
    fp16_full_finetune.check,
    bf16_unsupported.check,
    fp8_without_compile.check,
    bf16_left_off.check,
    fp32_weights.check,
    fp8_unsupported_card.check,
    # method
    modules_to_save_full_copies.check,
    reference_model_in_memory.check,
    # optimizer
    optimizer_step_peak.check,
    optimizer_torch_too_old.check,
    # checkpointing
    checkpointing_unset.check,
    # attention
    attention_torch_too_old.check,
    attention_unsupported_card.check,
    eager_attention_quadratic.check,
    flash_attention_broken.check,
    packing_leaks_across_samples.check,
    packing_sdpa_bf16.check,
    # loss
    chunked_loss_holds_logits.check,
    logits_dominate.check,
    # sharding
    fsdp_accumulates_whole_gradients.check,
    full_state_dict_gather.check,
    # allocator
    allocator_not_expandable.check,
    does_not_fit.check,
    tight_fit.check,
    # config
    duplicate_key.check,
    output_in_model_folder.check,
)


class _RulesVerb(ModuleType):
    """A package that can be called, because its name is also the name of a verb."""

    def __call__(self) -> tuple[Rule, ...]:
        """All rules."""
        from vramwise.api import rules

        return rules()


sys.modules[__name__].__class__ = _RulesVerb
