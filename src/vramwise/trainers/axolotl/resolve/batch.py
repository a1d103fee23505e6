"""Batch arithmetic, batch shapes and evaluation, as Axolotl resolves them."""

from __future__ import annotations

import math

from vramwise.facts.attention import supports_packing
from vramwise.trainers.axolotl.resolve.kernels import isolates_packed_samples
from vramwise.trainers.axolotl.schema import Schema
from vramwise.trainers.fields import Fields
from vramwise.types import Target


def resolve_batch(fields: Fields, target: Target) -> None:
    """Fills micro_batch_size, gradient_accumulation_steps, effective_batch_size."""
    micro = fields.at_least_one("micro_batch_size", 1)
    accumulation = _accumulation(fields, micro)
    ranks = fields.values["data_parallel"]
    why = f"micro {micro} × accumulation {accumulation} × data-parallel ranks {ranks}"
    fields.derive("effective_batch_size", micro * accumulation * ranks, why)


def _accumulation(fields: Fields, micro: int) -> int:
    config, name = fields.config, "gradient_accumulation_steps"
    fields.keys[name] = name
    batch = config.get("batch_size")
    if batch and config.get(name) is None:
        if name in config:  # an explicit null is the one case in which Axolotl divides
            why = f"batch_size {batch} // micro {micro}, because {name} is null"
            return int(fields.derive(name, max(1, batch // micro), why, key="batch_size"))
        why = "Axolotl's default 1 stays although batch_size is set"
        return int(fields.derive(name, 1, why, key="batch_size"))
    return fields.at_least_one(name, 1)


def resolve_shapes(fields: Fields) -> None:
    """Fills sequence_len, sample_packing, packing_rows, pad_to_sequence_len, pad_multiple, constant_shapes…"""
    config = fields.config
    length = fields.at_least_one("sequence_len", 512)
    packing = bool(fields.take("sample_packing", False))
    _packing_rows(fields, packing)
    padded = _padding(fields, packing)
    multiple = max(1, config.get("pad_to_multiple_of") or 64)
    if _pads_itself(fields):
        _trl_padding(fields)
    elif padded:
        width = multiple * -(-length // multiple)
        fields.derive(
            "pad_multiple", width, f"every batch is {width} wide: sequence_len up to a multiple of {multiple}"
        )
    elif config.get("pad_to_sequence_len") is False:
        fields.derive("pad_multiple", 1, "longest row of the batch, not rounded", key="pad_to_sequence_len")
    else:
        fields.derive("pad_multiple", multiple, f"longest row of the batch, up to a multiple of {multiple}")
    _constant_shapes(fields, padded)
    _can_pad(fields)
    fields.take("group_by_length", False)
    cuts = config.get("excess_length_strategy", "drop") == "truncate"
    why = "excess_length_strategy truncate" if cuts else "samples that are too long are dropped"
    fields.derive("long_rows", "cut" if cuts else "drop", why, key="excess_length_strategy")


def _pads_itself(fields: Fields) -> bool:
    """Whether TRL's own collator makes the batches: for all of `rl`, not for reward models."""
    return fields.values["objective"] in ("dpo", "kto", "orpo", "cpo", "grpo")


def _trl_padding(fields: Fields) -> None:
    """The longest row of a batch; a multiple counts for pairs alone."""
    key = "pad_to_multiple_of"
    multiple = max(1, fields.config.get(key) or 1) if fields.values["objective"] in ("dpo", "orpo", "cpo") else 1
    why = "longest row of the batch" + (f", up to a multiple of {multiple}" if multiple > 1 else ", not rounded")
    fields.derive("pad_multiple", multiple, f"TRL's collator: {why}", key=key)


def _constant_shapes(fields: Fields, padded: bool) -> None:
    config = fields.config
    if padded and config.get("processor_type") and not fields.values["sample_packing"]:
        fields.derive(
            "constant_shapes", False, "the multimodal collator does not pad to sequence_len", key="processor_type"
        )
    elif padded and config.get("batch_flattening") and not fields.values["sample_packing"]:
        fields.derive("constant_shapes", False, "batch_flattening drops the padding", key="batch_flattening")
    elif padded:
        fields.derive("constant_shapes", True, "padded to sequence_len")
    elif config.get("pretraining_dataset"):
        fields.derive(
            "constant_shapes", True, "pretraining data is concatenated to full rows", key="pretraining_dataset"
        )
    else:
        fields.derive("constant_shapes", False, "widths follow the data")


def _can_pad(fields: Fields) -> None:
    for key in ("processor_type", "batch_flattening"):
        if fields.config.get(key) and not fields.values["sample_packing"]:
            fields.derive("can_pad", False, f"{key}: batches are not padded to a length", key=key)
            return
    fields.derive("can_pad", True, "text in rows")


def _packing_rows(fields: Fields, packing: bool) -> None:
    if not packing:
        fields.derive("packing_rows", "none", "sample_packing is off")
        fields.derive("samples_apart", True, "a row holds one sample")
        return
    attention = fields.values["attn_implementation"]
    real_batches = fields.config.get("multipack_real_batches")
    one = supports_packing(attention) if real_batches is None else not real_batches
    why = f"{attention} takes one row of micro × sequence_len tokens" if one else f"{attention}: micro rows"
    fields.derive("packing_rows", "one" if one else "micro", why)
    apart = fields.origins["attn_implementation"].kind != "default" and isolates_packed_samples(attention)
    why = f"{attention} keeps them apart" if apart else "the plain mask stays: each sees those before it in its row"
    fields.derive("samples_apart", apart, why, key=fields.origins["attn_implementation"].key)


def _padding(fields: Fields, packing: bool) -> bool:
    name = "pad_to_sequence_len"
    if _pads_itself(fields):
        return bool(fields.derive(name, False, "TRL's collator pads to the longest row of a batch", key=name))
    if fields.config.get(name) is not None:
        return bool(fields.take(name, False))
    for key, on in (("sample_packing", packing), ("reward_model", bool(fields.config.get("reward_model")))):
        if on:
            return bool(fields.derive(name, True, f"on by itself with {key}", key=key))
    return bool(fields.take(name, False))


def resolve_eval(fields: Fields, schema: Schema) -> None:
    """Fills evaluates, eval_batch_size, eval_sequence_len, eval_sample_packing, eval_on_start, eval_steps."""
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
    """Supervised runs pass gradient_accumulation_steps on as eval_accumulation_steps, and that empties the cache."""
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
    if not (evaluates and _scheduled(fields)):
        fields.derive(key, False, "no eval is scheduled")
    elif written is not None:
        fields.put(key, bool(written), fields.written(key))
    else:
        why = "any eval schedule brings an eval before the first step"
        off = "eval_on_start: false turns it off" if schema.key_type(key) else "a key for it comes with Axolotl 0.21"
        fields.derive(key, True, f"{why}; {off}")


def _scheduled(fields: Fields) -> bool:
    """Whether an eval is scheduled. `evals_per_epoch` counts only if it gives more than one eval in the run."""
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
