"""Resolves rows: length, packing and padding. Follows data/processor/ and data/collator.py of 0.9.4 and 0.9.5."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments

# The multiple to which the collators of all stages except pt round the longest row up.
_MULTIPLE = 8


def resolve_shapes(args: Arguments) -> None:
    """Fill sequence_len, sample_packing, packing_rows, pad_*, constant_shapes, can_pad… Needs the attention."""
    stage, cutoff = args.value("stage"), args.count("cutoff_len")
    asked = bool(args.value("packing")) or bool(args.value("neat_packing"))
    _packing(args, stage, asked)
    packed = args.values["sample_packing"]
    trimmed = _trimmed(args)
    if packed and asked and (stage == "pt" or trimmed):
        why = f"cutoff_len {cutoff} minus one: LLaMA-Factory shortens it if packing is set"
        args.derive("sequence_len", max(1, cutoff - 1), why, key="cutoff_len")
    else:
        args.take_count("sequence_len", "cutoff_len")
    _padding(args, stage, trimmed)
    _filling(args, trimmed)
    _labels(args, stage)
    args.derive("long_rows", "cut", "samples above cutoff_len are cut", key="cutoff_len")
    full = packed and not trimmed
    varying = "padding is trimmed off" if packed else "widths follow the data"
    args.derive("constant_shapes", full, "packed rows are filled up" if full else varying)
    args.derive("can_pad", False, "no key pads rows to a fixed length; packing fills them")


def _packing(args: Arguments, stage: str, asked: bool) -> None:
    """Fill sample_packing: for pt and sft; on by default for pt. `neat_packing` turns it on."""
    name = "sample_packing"
    if stage not in ("pt", "sft"):
        args.derive(name, False, f"stage {stage} packs nothing", key="packing")
    elif args.value("neat_packing") and not args.value("packing"):
        args.derive(name, True, "neat_packing turns it on", key="neat_packing")
    elif args.value("packing") is None and stage == "pt":
        args.derive(name, True, "on by default in stage pt", key="stage")
        args.fields.keys[name] = "packing"
    else:
        args.put(name, "packing", asked)
    _rows(args, stage)


def _rows(args: Arguments, stage: str) -> None:
    """Fill how packed rows reach attention, and whether their samples attend to each other.

    `neat_packing` under flash attention: one row, split at the samples' starts. Under any other attention, the collator
    creates a block-diagonal mask. Without it, rows look like any others, unless transformers detects from the positions
    that a row holds several samples; it does so under flash attention with a batch of one.
    """
    flash = "flash" in args.values["attn_implementation"]
    alone = args.values["micro_batch_size"] == 1
    mask = "none"
    if not args.values["sample_packing"]:
        rows, apart, why = "none", True, "a row holds one sample"
    elif args.value("neat_packing") and flash:
        rows, apart, why = "one", True, "neat_packing: flash attention gets the start of each sample"
    elif args.value("neat_packing"):
        mask, rows, apart, why = "batch", "micro", True, "neat_packing: a block-diagonal mask comes with the batch"
    elif flash and alone and stage == "sft":
        rows, apart, why = "one", True, "positions restart with each sample, and flash attention uses them"
    elif stage == "pt":
        rows, apart, why = "micro", True, "stage pt trains on one stream of text without sample boundaries"
    else:
        rows, apart, why = (
            "micro",
            False,
            "packing without neat_packing: each sample attends to the ones before it in its row",
        )
    args.derive("packing_rows", rows, why, key="packing")
    args.derive("samples_apart", apart, why, key="packing")
    args.derive("packed_mask", mask, "in the batch" if mask == "batch" else "none is created", key="packing")


def _trimmed(args: Arguments) -> bool:
    """Return whether padding is removed from packed rows: by the collator of `neat_packing` under flash attention."""
    return args.values["packing_rows"] == "one" and bool(args.value("neat_packing"))


def _filling(args: Arguments, trimmed: bool) -> None:
    why = "row by row, starting with the longest sample that fits" if trimmed else "rows are filled up"
    args.derive("packing_fill", "knapsack" if trimmed else "full", why, key="packing")
    args.take_count("packed_together", "preprocessing_batch_size")


def _labels(args: Arguments, stage: str) -> None:
    name = "labels_on"
    if stage == "pt" or (stage == "sft" and args.value("train_on_prompt")):
        args.derive(name, "all", "all tokens are trained on", key="train_on_prompt")
    elif stage == "sft" and args.value("mask_history"):
        args.derive(name, "last_answer", "mask_history: only the last turn", key="mask_history")
    else:
        args.derive(name, "answers", "prompts have no labels", key="train_on_prompt")


def _padding(args: Arguments, stage: str, trimmed: bool) -> None:
    args.derive("pad_to_sequence_len", False, "rows are padded to the longest of their batch", key="cutoff_len")
    if stage == "pt" or trimmed:
        args.derive("pad_multiple", 1, "not rounded", key="cutoff_len")
    else:
        why = f"the longest row of the batch, up to a multiple of {_MULTIPLE}"
        args.derive("pad_multiple", _MULTIPLE, why, key="cutoff_len")
