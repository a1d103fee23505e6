"""Resolves the rows of a batch as Axolotl does: lengths, packing and padding."""

from __future__ import annotations

from vramwise.facts.attention import supports_packing
from vramwise.trainers.axolotl.resolve.kernels import isolates_packed_samples
from vramwise.trainers.axolotl.schema import Schema
from vramwise.trainers.fields import Fields


def resolve_shapes(fields: Fields, schema: Schema) -> None:
    """Fill sequence_len, sample_packing, packing_rows, pad_to_sequence_len, pad_multiple, constant_shapes…"""
    config = fields.config
    length = fields.at_least_one("sequence_len", 512)
    packing = bool(fields.take("sample_packing", False))
    _packing_rows(fields, packing, schema)
    padded = _padding(fields, packing, schema)
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
    """Return whether TRL's own collator makes the batches: for all `rl` methods, not for reward models."""
    return fields.values["objective"] in ("dpo", "kto", "orpo", "cpo", "grpo")


def _trl_padding(fields: Fields) -> None:
    """Fill the padding to the longest row of a batch; a multiple only applies to pairs."""
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


def _packing_rows(fields: Fields, packing: bool, schema: Schema) -> None:
    if not packing:
        fields.derive("packing_rows", "none", "sample_packing is off")
        fields.derive("samples_apart", True, "a row holds one sample")
        return
    attention = fields.values["attn_implementation"]
    real_batches = fields.config.get("multipack_real_batches")
    flash = attention == "flash_attention_2"
    one = supports_packing(attention) if schema.since("0.12.0") else flash  # core/builders/causal.py
    if not schema.since("0.10.0"):  # core/trainer_builder.py: `not flash_attention or multipack_real_batches`
        one = flash and not real_batches
    elif real_batches is not None:
        one = not real_batches
    why = f"{attention} takes one row of micro × sequence_len tokens" if one else f"{attention}: micro rows"
    fields.derive("packing_rows", "one" if one else "micro", why)
    apart = fields.origins["attn_implementation"].kind != "default" and isolates_packed_samples(attention)
    why = f"{attention} keeps them apart" if apart else "the plain mask stays: each sees those before it in its row"
    fields.derive("samples_apart", apart, why, key=fields.origins["attn_implementation"].key)


def _padding(fields: Fields, packing: bool, schema: Schema) -> bool:
    name = "pad_to_sequence_len"
    if _pads_itself(fields):
        return bool(fields.derive(name, False, "TRL's collator pads to the longest row of a batch", key=name))
    if fields.config.get(name) is not None:
        return bool(fields.take(name, False))
    # up to 0.9 utils/schemas/config.py only recommends it with packing
    packing = packing and schema.since("0.10.0")
    for key, on in (("sample_packing", packing), ("reward_model", bool(fields.config.get("reward_model")))):
        if on:
            return bool(fields.derive(name, True, f"on by itself with {key}", key=key))
    return bool(fields.take(name, False))
