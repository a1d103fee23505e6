"""Resolves rows: cut to max_seq_length, and flattened into one without padding unless the config says otherwise."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.trl.resolve.shapes import resolve_shapes
from vramwise.trainers.unsloth.keys import since
from vramwise.types import Target

_TRL_DEFAULT = 1024


def resolve_rows(args: Arguments, target: Target, kind: str) -> None:
    """Fill sequence_len, packing and related settings. Needs the batch."""
    if "attn_implementation" not in args.values:
        args.derive("attn_implementation", "sdpa", "Unsloth picks its own kernel: attn_implementation is dropped")
    resolve_shapes(args, kind)
    if kind == "sft":
        _length(args)
        if since(target.stack, 2025, 12):
            _flattened(args)


def _length(args: Arguments) -> None:
    """Fill the length: the model's max_seq_length, unless the config sets a shorter one; TRL's default is ignored."""
    most = args.value("max_seq_length")
    most = most if isinstance(most, int) and most > 0 else None
    written = args.fields.config.get("max_length") if args.written("max_length") else None
    said = written if isinstance(written, int) and 0 < written != _TRL_DEFAULT else None
    if most is None:
        return
    if said is not None and said < most:
        args.derive("sequence_len", said, f"max_length {said} is below max_seq_length {most}", key="max_length")
    else:
        args.put("sequence_len", "max_seq_length", most)
    args.derive("long_rows", "cut", "rows above max_seq_length are cut", key="max_seq_length")


def _own_collator(args: Arguments) -> bool:
    """Return whether the script passes its own collator: then rows stay separate, and nothing is packed."""
    script = args.fields.config.document.script
    return script is not None and "data collator" in script.facts


def _flattened(args: Arguments) -> None:
    off = args.written("padding_free") and args.value("padding_free") is False
    if args.value("packing") or off or _own_collator(args):
        return
    why = "Unsloth flattens batches: no padding, unless padding_free is False"
    args.derive("packing_rows", "one", why, key="padding_free")
    args.derive("packing_fill", "single", "each sample is a part of the flattened row", key="padding_free")
    args.derive("samples_apart", True, "positions begin anew with each sample", key="padding_free")
    args.derive("can_pad", False, "the batch is one row without padding")
    args.derive("constant_shapes", False, "as long as the samples of a batch are together")
