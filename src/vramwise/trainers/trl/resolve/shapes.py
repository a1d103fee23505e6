"""Resolves row lengths, packing and padding, as TRL's data preparation and collators do."""

from __future__ import annotations

from vramwise.facts.attention import supports_packing
from vramwise.trainers.arguments import Arguments
from vramwise.units import whole_number

# The length of a row without a limit if the data is unknown: TRL's own limit where none is written.
UNLIMITED = 1024
# Prompts of generated completions have no limit since TRL 1.0.
_PROMPT = 512
# "ffd" is that of 0.19, first fit instead of best fit.
_FLATTENING = ("ffd", "bfd", "bfd_split", "bfd-requeue")
_FILLS = {
    "ffd": "best_fit",
    "bfd": "best_fit",
    "bfd_split": "best_fit_split",
    "bfd-requeue": "best_fit_split",
    "wrapped": "stream",
}
# The batch size of `datasets.map`.
_TOGETHER = 1000
_GENERATING = ("grpo", "rloo", "distillation")


def resolve_shapes(args: Arguments, kind: str) -> None:
    """Fill sequence_len, sample_packing, packing_rows, padding and related settings. Needs the attention backend."""
    length = _length(args, kind)
    packing = kind == "sft" and bool(args.value("packing"))
    args.put("sample_packing", "packing", packing)
    flat = kind == "sft" and not packing and bool(args.value("padding_free"))
    _rows(args, kind, packing, flat)
    _labels(args, kind)
    _padding(args, kind, length, packing or flat)
    why = "rows above max_length are cut" if args.value("max_length") is not None else "nothing is cut"
    args.derive("long_rows", "cut", why, key="max_length")


def _length(args: Arguments, kind: str) -> int:
    if kind in _GENERATING:
        completion = args.count("max_completion_length")
        why = f"a completion of {completion} after a prompt without a limit: {_PROMPT} tokens assumed"
        args.fields.keys["sequence_len"] = "max_completion_length"
        return int(args.fields.assume("sequence_len", completion + _PROMPT, why))
    if args.value("max_length") is None and args.words.named("max_length") == "max_seq_length":
        why = f"unset: TRL before 0.15 takes {UNLIMITED:,}, or less if the tokenizer names a smaller length"
        args.fields.keys["sequence_len"] = "max_length"
        return int(args.derive("sequence_len", UNLIMITED, why, key="max_length"))
    if args.value("max_length") is None:
        why = f"max_length is null, so nothing limits the rows: {UNLIMITED:,} tokens assumed"
        args.fields.keys["sequence_len"] = "max_length"
        return int(args.fields.assume("sequence_len", UNLIMITED, why))
    return args.take_count("sequence_len", "max_length")


def _rows(args: Arguments, kind: str, packing: bool, flat: bool) -> None:
    # Before 0.19, a stream of tokens was cut into rows (ConstantLengthDataset, then pack_dataset; 0.4.7 and 0.18.0).
    strategy = args.value("packing_strategy") or "wrapped" if kind == "sft" else None
    if packing and strategy in _FLATTENING:
        args.derive("packing_rows", "one", f"{strategy} packing flattens the batch to one row", key="packing_strategy")
        name = args.values["attn_implementation"]
        apart = supports_packing(name) or name in ("sdpa", "eager")
        args.derive("samples_apart", apart, "positions restart with each sample", key="attn_implementation")
    elif flat:
        args.derive("packing_rows", "one", "padding_free flattens the batch to one row", key="padding_free")
        args.derive("samples_apart", True, "positions restart with each sample", key="padding_free")
    elif packing:
        args.derive("packing_rows", "micro", f"{strategy}: rows are cut to fit", key="packing_strategy")
        args.derive("samples_apart", False, "the model sees a row as one text", key="packing_strategy")
        args.derive("packed_mask", "none", "the model sees a row as one text", key="packing_strategy")
    else:
        args.derive("packing_rows", "none", "packing is off", key="packing")
        args.derive("samples_apart", True, "a row holds one sample")
    if packing:
        fill = _FILLS.get(str(strategy), "full")
        args.derive("packing_fill", fill, f"packing_strategy {strategy}", key="packing_strategy")
    else:
        why = "each sample is a part of the flattened row" if flat else "packing is off"
        args.derive("packing_fill", "single" if flat else "full", why, key="padding_free" if flat else "packing")
    args.derive("packed_together", _TOGETHER, "the batch size of datasets.map")


def _labels(args: Arguments, kind: str) -> None:
    """Fill labels_on: prompts in a separate column have no labels, unless the file says otherwise."""
    name = "labels_on"
    if kind == "sft" and args.value("assistant_only_loss"):
        args.derive(name, "answers", "assistant_only_loss", key="assistant_only_loss")
    elif kind == "sft" and args.value("completion_only_loss") is False:
        args.derive(name, "all", "completion_only_loss is off", key="completion_only_loss")
    elif kind == "reward":
        args.derive(name, "all", "a reward for each row")
    else:
        args.derive(name, "completions", "prompts are not trained on", key="completion_only_loss")


def _padding(args: Arguments, kind: str, length: int, packed: bool) -> None:
    written = args.value("pad_to_multiple_of")
    multiple = written if isinstance(written, int) and written > 0 else _number(written)
    full = multiple > 1 and multiple % length == 0 and not packed and kind not in _GENERATING
    why = f"every batch is {multiple} wide" if full else "the longest row of the batch"
    args.put("pad_multiple", "pad_to_multiple_of", max(1, multiple))
    args.put("pad_to_sequence_len", "pad_to_multiple_of", full, why=why)
    wrapped = args.values["packing_rows"] == "micro"
    constant = full or wrapped
    shown = "rows of max_length tokens" if wrapped else why
    args.derive("constant_shapes", constant, shown, key="packing" if wrapped else "pad_to_multiple_of")
    limited = kind in _GENERATING or args.value("max_length") is not None
    can = args.values["packing_rows"] != "one" and limited  # flattened batches are not padded to a width
    why = "text in rows" if can else "no length to pad to" if not limited else "the batch is one row without padding"
    args.derive("can_pad", can, why)


def _number(written: object) -> int:
    number = whole_number(written) if isinstance(written, str) else None
    return 1 if number is None else number
