"""Resolves whether, when and with which batches Axolotl evaluates."""

from __future__ import annotations

import math

from vramwise.trainers.axolotl.schema import Schema
from vramwise.trainers.fields import Fields


def resolve_eval(fields: Fields, schema: Schema) -> None:
    """Fill evaluates, eval_batch_size, eval_sequence_len, eval_sample_packing, eval_on_start and eval_steps."""
    evaluates = _evaluates(fields, schema)
    packed = _packed_eval(fields)
    micro = fields.values["micro_batch_size"]
    if not evaluates:
        fields.derive("eval_batch_size", None, "no eval happens")
        fields.derive("eval_sequence_len", None, "no eval happens")
    else:
        if packed:
            why = "packed eval reuses the training sampler: eval_batch_size has no effect"
            fields.derive("eval_batch_size", micro, why)
        else:
            fields.at_least_one("eval_batch_size", micro, why="unset: as micro_batch_size")
        fields.at_least_one("eval_sequence_len", fields.values["sequence_len"], why="unset: as sequence_len")
    scheduled = _scheduled(fields)
    fields.derive("eval_scheduled", scheduled, "an eval is scheduled" if scheduled else "no eval is scheduled")
    _eval_on_start(fields, schema, evaluates)
    _emptied_eval(fields)
    steps = fields.take("eval_steps", None)
    if isinstance(steps, float) and not math.isfinite(steps):
        fields.derive("eval_steps", None, f"step {steps} never comes", key="eval_steps")


def _emptied_eval(fields: Fields) -> None:
    """Fill eval_empties_every: supervised runs use gradient_accumulation_steps as eval_accumulation_steps.

    That empties the cache.
    """
    name = "eval_empties_every"
    if not fields.values["evaluates"]:
        fields.derive(name, None, "no eval happens")
    elif fields.values["rl"]:
        fields.derive(name, None, "eval_accumulation_steps is set for supervised training alone", key="rl")
    else:
        every = fields.values["gradient_accumulation_steps"]
        fields.derive(name, every, "eval_accumulation_steps follows gradient_accumulation_steps")


def _eval_on_start(fields: Fields, schema: Schema, evaluates: bool) -> None:
    key = "eval_on_start"
    written = fields.config.get(key) if schema.key_type(key) else None
    if not schema.since("0.10.0"):  # core/trainer_builder.py does not set it, core/builders/base.py does
        fields.derive(key, False, "no eval before the first step up to Axolotl 0.9")
    elif not (evaluates and _scheduled(fields)):
        fields.derive(key, False, "no eval is scheduled")
    elif written is not None:
        fields.put(key, bool(written), fields.written(key))
    else:
        why = "any eval schedule brings an eval before the first step"
        off = "eval_on_start: false turns it off" if schema.key_type(key) else "a key for it comes with Axolotl 0.21"
        fields.derive(key, True, f"{why}; {off}")


def _scheduled(fields: Fields) -> bool:
    """Return whether an evaluation is scheduled; `evals_per_epoch` counts only if it gives more than one in the run."""
    config = fields.config
    if config.get("eval_steps") or config.get("eval_strategy") or config.get("evaluation_strategy"):
        return True
    return bool((config.get("evals_per_epoch") or 0) * config.get("num_epochs", 1) > 1)


def _evaluates(fields: Fields, schema: Schema) -> bool:
    config = fields.config
    never = config.get("eval_strategy", config.get("evaluation_strategy")) == "no"
    if never and schema.since("0.21.0"):
        why = f"eval_strategy no: Axolotl {schema.short} never evaluates (up to 0.20: once, before the first step)"
        return bool(fields.derive("evaluates", False, why, key="eval_strategy"))
    if config.get("test_datasets"):
        return bool(fields.derive("evaluates", True, "test_datasets", key="test_datasets"))
    share = config.get("val_set_size") or 0
    why = f"val_set_size {share}" if share else "neither val_set_size nor test_datasets"
    if share and config.get("eval_strategy") == "no":
        why = "eval_strategy no still evaluates once, before the first step"
    return bool(fields.derive("evaluates", bool(share), why, key="val_set_size"))


def _packed_eval(fields: Fields) -> bool:
    name = "eval_sample_packing"
    if fields.config.get(name) is not None:
        return bool(fields.take(name, False)) and bool(fields.values["sample_packing"])
    if fields.values["sample_packing"] and not fields.config.get("eval_table_size"):
        return bool(fields.derive(name, True, "follows sample_packing", key="sample_packing"))
    return bool(fields.take(name, False))
