"""Resolves whether and how a run evaluates: with batch size 8 by default, whatever training uses."""

from __future__ import annotations

import math

from vramwise.trainers.arguments.values import Arguments


def resolve_eval(args: Arguments, *, data: bool = True, why_not: str = "", packed: bool = False) -> None:
    """Fill evaluates and eval_*. Needs sequence_len and sample_packing.

    `data`: whether there is anything to evaluate on; `why_not`: why there is not. `packed`: its rows are packed.
    """
    happens = _evaluates(args, data, why_not)
    if not happens:
        for field, key in (("eval_batch_size", "per_device_eval_batch_size"), ("eval_sequence_len", None)):
            args.derive(field, None, "no evaluation runs", key=key)
        args.derive("eval_sample_packing", False, "no evaluation runs")
    else:
        args.take_count("eval_batch_size", "per_device_eval_batch_size")
        args.derive("eval_sequence_len", args.values["sequence_len"], "rows are cut as in training")
        args.derive("eval_sample_packing", packed, "as the training rows" if packed else "rows are not packed")
    args.derive("eval_scheduled", happens, "by eval_strategy", key="eval_strategy")
    starts = happens and bool(args.value("eval_on_start"))
    args.derive("eval_on_start", starts, "an evaluation before the first step" if starts else "not requested")
    _steps(args, happens)
    every = args.value("eval_accumulation_steps") if happens else None
    why = "outputs then move to host memory" if every else "outputs stay on the card until the end of an evaluation"
    args.derive("eval_empties_every", every if isinstance(every, int) and every > 0 else None, why)


def _evaluates(args: Arguments, data: bool, why_not: str) -> bool:
    # unquoted `eval_strategy: no` is false in YAML, which no parser accepts: then nothing was chosen
    strategy = args.value("eval_strategy")
    if strategy in (None, False, "no"):
        why = "eval_strategy is no" if args.written("eval_strategy") else "eval_strategy is no by default"
        return bool(args.derive("evaluates", False, why, key="eval_strategy"))
    if not data:
        return bool(args.derive("evaluates", False, why_not, key="eval_strategy"))
    return bool(args.derive("evaluates", True, f"eval_strategy {strategy}", key="eval_strategy"))


def _steps(args: Arguments, happens: bool) -> None:
    """Fill eval_steps: if unset or 0, it is logging_steps; with strategy `epoch` it has no effect."""
    if not happens or args.value("eval_strategy") != "steps":
        args.derive("eval_steps", None, "evaluation is not scheduled by steps", key="eval_steps")
        return
    steps = args.value("eval_steps") or args.value("logging_steps")
    number = float(steps) if isinstance(steps, int | float) and math.isfinite(steps) else None
    if args.value("eval_steps"):
        args.put("eval_steps", "eval_steps", number)
    else:
        args.derive("eval_steps", number, "unset: as logging_steps", key="logging_steps")
