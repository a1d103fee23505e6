"""Resolves whether a run evaluates: on held-out samples or its own dataset, by a schedule or once at the end."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments, resolve_eval

# A smaller `val_size` counts as none.
_NONE = 1e-6


def resolve_evaluation(args: Arguments) -> None:
    """Fill evaluates and eval_*. Needs the shapes."""
    held = args.value("val_size")
    data = bool(args.value("eval_dataset")) or (isinstance(held, int | float) and held > _NONE)
    packed = args.values["sample_packing"]
    resolve_eval(args, data=data, why_not="neither val_size nor eval_dataset", packed=packed)
    at_the_end = data and bool(args.value("do_eval")) and not args.values["evaluates"]
    if at_the_end:
        _at_the_end(args, packed)


def _at_the_end(args: Arguments, packed: bool) -> None:
    """Fill an evaluation after training: `do_eval` without a schedule."""
    why = "do_eval: once, after training"
    args.derive("evaluates", True, why, key="do_eval")
    args.derive("eval_scheduled", True, why, key="do_eval")
    args.take_count("eval_batch_size", "per_device_eval_batch_size")
    args.derive("eval_sequence_len", args.values["sequence_len"], "rows are cut as in training")
    args.derive("eval_sample_packing", packed, "as the training rows" if packed else "rows are not packed")
