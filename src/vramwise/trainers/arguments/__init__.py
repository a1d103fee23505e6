"""Configs that transformers' HfArgumentParser reads: what TRL, LLaMA-Factory and the plain Trainer have in common.

What a trainer built on TrainingArguments uses from here, and nothing else:

    training_arguments(stack)          every key of TrainingArguments in the stack's transformers, as a Vocabulary
    Vocabulary(facts), a | b           keys with type, default, meaning for memory; joined; `check`, `misread`, `held`
    arguments_config(document, words)  a Document → Config with values as the dataclass would hold them
    Arguments(fields, words)           the values of the dataclass while a RunSpec is built: `value`, `take`, `derive`
    resolve_adapter(args)              adapter, lora_*: what PEFT is given
    resolve_batch(args)                micro_batch_size, gradient_accumulation_steps, effective_batch_size…
    resolve_eval(args, …)              evaluates, eval_*: eval_batch_size is 8 where nothing is said
    resolve_precision(args, …)         precision, precision_by_card, autocast
    resolve_checkpointing(args, …)     gradient_checkpointing, recompute, checkpointing_reentrant
    resolve_optimizer(args)            optimizer, max_grad_norm
    resolve_savers(args, …)            torch_compile, empty_cache_steps, collect_steps, Liger's kernels but the loss
    resolve_sharding(args, …)          gpus, data_parallel, sharding and all that belongs to it; accelerate's file too
    resolve_absent(args, target)       what none of these trainers has, and what transformers' version decides
    side_files(values)                 names of the DeepSpeed, FSDP and accelerate files that a config names
    resolved(…)                        Fields → RunSpec
    spell_with(spellers, run, change)  a change as edits; `SPELLERS`: field → speller for TrainingArguments
    ArgumentsTrainer                   a base class for such trainers: `vocabulary`, `unknown_keys`, `type_errors`…
    WORDS                              change id → lines to write where no config is at hand
    unknown_key(key, words, …)         why a key is none of a trainer's, with "did you mean"

Rules about arguments that every such trainer shares are in `arguments/rules` (`ARGUMENT_RULES`).
"""

from __future__ import annotations

from vramwise.trainers.arguments.resolve.adapter import (
    loads_by_itself,
    resolve_adapter,
    resolve_loaded_type,
    resolve_unsaid_type,
)
from vramwise.trainers.arguments.resolve.batch import resolve_batch
from vramwise.trainers.arguments.resolve.checkpointing import resolve_checkpointing
from vramwise.trainers.arguments.resolve.evaluation import resolve_eval
from vramwise.trainers.arguments.resolve.precision import resolve_precision
from vramwise.trainers.arguments.resolve.savings import resolve_optimizer, resolve_savers
from vramwise.trainers.arguments.resolve.sharding import resolve_sharding, side_files
from vramwise.trainers.arguments.resolve.unused import resolve_absent
from vramwise.trainers.arguments.spell import SPELLERS, WORDS, spell_with
from vramwise.trainers.arguments.trainer import ArgumentsTrainer
from vramwise.trainers.arguments.values import Arguments, arguments_config
from vramwise.trainers.arguments.vocabulary import Vocabulary, training_arguments, unknown_key
from vramwise.trainers.fields import resolved

# The package of the rules that all of them share.
ARGUMENT_RULES = "vramwise.trainers.arguments.rules"
# Of trainers that scripts call.
SCRIPT_RULES = "vramwise.trainers.scripts.rules"

__all__ = [
    "ARGUMENT_RULES",
    "SCRIPT_RULES",
    "SPELLERS",
    "WORDS",
    "Arguments",
    "ArgumentsTrainer",
    "Vocabulary",
    "arguments_config",
    "loads_by_itself",
    "resolve_absent",
    "resolve_adapter",
    "resolve_batch",
    "resolve_checkpointing",
    "resolve_eval",
    "resolve_loaded_type",
    "resolve_optimizer",
    "resolve_precision",
    "resolve_savers",
    "resolve_sharding",
    "resolve_unsaid_type",
    "resolved",
    "side_files",
    "spell_with",
    "training_arguments",
    "unknown_key",
]
