"""Resolves a Document to a RunSpec for TRL: what the run really does, with a reason for every value.

Follows the dataclass defaults of the stack's version and the code of its scripts and trainers (docs/trl.md).
"""

from __future__ import annotations

from vramwise.trainers.arguments import (
    Arguments,
    arguments_config,
    resolve_absent,
    resolve_batch,
    resolve_checkpointing,
    resolve_eval,
    resolve_optimizer,
    resolve_precision,
    resolve_savers,
    resolve_sharding,
    resolved,
)
from vramwise.trainers.base import SideFiles
from vramwise.trainers.fields import Fields
from vramwise.trainers.trl.keys import vocabulary
from vramwise.trainers.trl.kind import kind_of
from vramwise.trainers.trl.resolve.adapter import resolve_method
from vramwise.trainers.trl.resolve.allocator import accelerate_of, allocator_variables
from vramwise.trainers.trl.resolve.objective import resolve_preference
from vramwise.trainers.trl.resolve.shapes import resolve_shapes
from vramwise.trainers.trl.resolve.unfollowed import resolve_unfollowed
from vramwise.types import Document, RunSpec, Target


def resolve_trl(document: Document, target: Target, files: SideFiles, said: str | None = None) -> RunSpec:
    """Return the run. `said`: the kind of training, if the user chose it."""
    kind = kind_of(document, said)
    words = vocabulary(kind.name, target.stack)
    args = Arguments(Fields(arguments_config(document, words), "TRL"), words)
    accelerate = accelerate_of(document.values, files, target.accelerate)
    args.put("base_model", "model_name_or_path", args.text("model_name_or_path"), why="no model is set")
    resolve_sharding(args, target, files, accelerate)
    resolve_batch(args)
    # Before TRL 0.19, bf16 was off by default, as in transformers.
    bf16 = not target.stack.older_than("trl", "0.19")
    resolve_precision(args, bf16_unless_fp16=bf16, accelerate=accelerate.mixed_precision)
    _checkpointing(args, target)
    resolve_method(args, target)
    resolve_optimizer(args)
    resolve_savers(args)
    _offloading(args)
    resolve_preference(args, target, kind)
    resolve_shapes(args, kind.name)
    _evaluation(args, kind.name)
    _order(args)
    resolve_unfollowed(args, target.stack)
    resolve_absent(args, target)
    added = allocator_variables(document.values)
    return resolved(args.fields, target, trainer="trl", title="TRL", added=added, whose="the file's env", block="env")


def _evaluation(args: Arguments, kind: str) -> None:
    """Fill the evaluation; one collator serves both, so evaluation batches are flattened like training batches."""
    packed = args.value("eval_packing") if kind == "sft" else False
    resolve_eval(args, packed=bool(args.values["sample_packing"] if packed is None else packed))
    if args.values["evaluates"] and args.values["packing_rows"] == "one" and not args.values["eval_sample_packing"]:
        args.derive("eval_sample_packing", True, "not packed, but flattened to one row as in training")


def _order(args: Arguments) -> None:
    if args.value("dataset_streaming"):
        args.derive("shuffle_seed", None, "a stream keeps its own order", key="dataset_streaming")


def _checkpointing(args: Arguments, target: Target) -> None:
    """Fill checkpointing: non-reentrant since 0.27 unless the kwargs say otherwise; LoRA under ZeRO 3 is reentrant.

    Before 0.7.1, TRL prepared a quantised base with PEFT's defaults, which turn it on (sft_trainer.py of 0.4.7). So
    does the wheel of 0.7.1, but not what its repository was under that number.
    """
    own = target.stack.parts("trl") >= (0, 27) or target.stack.parts("transformers") >= (5,)
    why = "TRL's default is non-reentrant" if own else "transformers 4's default, before TRL 0.27"
    resolve_checkpointing(args, reentrant=not own, why=why)
    quantised = args.value("use_peft") and (args.value("load_in_4bit") or args.value("load_in_8bit"))
    if quantised and () < target.stack.really("trl") < (0, 7, 1) and not args.values["recompute"]:
        why = "TRL before 0.7.1 turns it on for a quantised base"
        for name in ("gradient_checkpointing", "recompute", "checkpointing_reentrant"):
            args.derive(name, True, why, key="gradient_checkpointing")
    on = bool(args.value("use_peft")) and args.values["gradient_checkpointing"]
    if on and args.values["sharding"] == "zero3":
        args.derive("checkpointing_reentrant", True, "forced: LoRA under ZeRO 3", key="gradient_checkpointing_kwargs")


def _offloading(args: Arguments) -> None:
    on = bool(args.value("activation_offloading"))
    key = "activation_offloading"
    args.put("activation_offloading", key, "stream" if on else "off", why="unset: nothing is offloaded")
