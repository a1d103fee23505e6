"""Resolves evaluation: flattened like training, with the training batch size by default."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments, resolve_eval


def resolve_evaluation(args: Arguments) -> None:
    """Fill evaluates and eval_*. Needs the rows."""
    packed = args.values["packing_rows"] == "one"
    resolve_eval(args, packed=packed)
    if args.values["evaluates"] and packed:
        args.derive("eval_sample_packing", True, "flattened to one row as in training")
    if args.values["evaluates"] and not args.written("eval_accumulation_steps"):
        every = args.value("eval_accumulation_steps")
        args.derive("eval_empties_every", every if isinstance(every, int) else None, "Unsloth's default")
