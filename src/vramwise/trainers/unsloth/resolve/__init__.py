"""Resolves a Document to a RunSpec for Unsloth: what the run really does, with a reason for every value.

TRL's trainers run it, so everything that Unsloth does not change is resolved as for TRL; the rest follows the source of
unsloth and unsloth_zoo 2026.10.9 (docs/unsloth.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.allocator.variables import EXPANDABLE, allocator_variable
from vramwise.trainers.arguments import (
    Arguments,
    arguments_config,
    resolve_absent,
    resolve_batch,
    resolve_optimizer,
    resolve_savers,
    resolve_sharding,
    resolved,
)
from vramwise.trainers.base import SideFiles
from vramwise.trainers.fields import Fields
from vramwise.trainers.trl.kind import Kind
from vramwise.trainers.trl.resolve.objective import resolve_preference
from vramwise.trainers.unsloth.keys import CLI_KEYS, cli_defaults, is_cli, since, vocabulary
from vramwise.trainers.unsloth.resolve.adapter import resolve_method
from vramwise.trainers.unsloth.resolve.evaluation import resolve_evaluation
from vramwise.trainers.unsloth.resolve.kernels import resolve_kernels
from vramwise.trainers.unsloth.resolve.loading import resolve_loading
from vramwise.trainers.unsloth.resolve.precision import resolve_dtypes
from vramwise.trainers.unsloth.resolve.savings import resolve_checkpointing
from vramwise.trainers.unsloth.resolve.shapes import resolve_rows
from vramwise.trainers.unsloth.resolve.unfollowed import resolve_unfollowed
from vramwise.types import Asked, Config, Document, RunSpec, Target

_UNROUNDED = (2, 10)  # torch version


def resolve_unsloth(document: Document, target: Target, files: SideFiles, kind: str) -> RunSpec:
    """Return the run of one kind of training."""
    words = vocabulary(kind, target.stack)
    defaults: dict[str, Any] = {}
    if is_cli(document):
        config = cli_config(document)
        defaults = {
            **{key: _cli_value(key, value) for key, value in cli_defaults(target.stack).items()},
            "use_peft": _section(document, "training").get("training_type") != "full",
        }
    else:
        config = arguments_config(document, words)
    args = Arguments(Fields(config, "Unsloth"), words, defaults)
    named = config.get("model_name_or_path")
    args.put("base_model", "model_name_or_path", named if isinstance(named, str) else None, why="no model is named")
    resolve_sharding(args, target, files)
    resolve_batch(args)
    resolve_dtypes(args, target)
    resolve_method(args, target)
    resolve_checkpointing(args, target)
    resolve_loading(args, target)
    resolve_optimizer(args)
    resolve_savers(args)
    resolve_preference(args, target, Kind(name=kind, why="the trainer that is called"))
    if kind == "sft":
        args.fields.neutral("reference_dtype", why="there is no reference")
    elif kind in ("dpo", "kto") and args.values["reference"] == "adapter_off":
        args.derive("reference", "adapter_copy", "TRL adds a frozen copy of the adapter to a model that has one")
    if kind != "sft" and args.values["adapter"]:
        args.derive("trains_in_fp32", True, "Unsloth leaves out TRL's cast of the adapter to bf16")
    resolve_rows(args, target, kind)
    resolve_kernels(args, target, kind)
    resolve_evaluation(args)
    resolve_unfollowed(args, target, kind)
    resolve_absent(args, target)
    # `import unsloth` sets it in the environment under the name that this torch reads, unless the user has
    added = {allocator_variable(target.torch): _allocator(target)}
    return resolved(args.fields, target, trainer="unsloth", title="Unsloth", added=added, whose="importing Unsloth")


def _allocator(target: Target) -> str:
    """Return what `import unsloth` sets; torch 2.10 and later read a variable without size rounding."""
    if target.torch >= _UNROUNDED or not since(target.stack, 2024, 11):
        return EXPANDABLE
    first = "32:256," if since(target.stack, 2025) else ""
    return f"{EXPANDABLE},roundup_power2_divisions:[{first}64:128,256:64,>:32]"


def cli_config(document: Document) -> Config:
    """Return the sections of the command's file as keys, with the place of each."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if isinstance(document.values.get("model"), str):
        values["model_name_or_path"] = document.values["model"]
        sources["model_name_or_path"] = "model"
    for (section, name), key in CLI_KEYS.items():
        block = _section(document, section)
        sources[key] = f"{section}.{name}"
        if name in block:
            values[key] = _cli_value(key, block[name])
    values["full_finetuning"] = _section(document, "training").get("training_type") == "full"
    sources["full_finetuning"] = "training.training_type"
    return Asked(document, values, sources)


def _section(document: Document, name: str) -> Mapping[str, Any]:
    found = document.values.get(name)
    return found if isinstance(found, Mapping) else {}


_CHECKPOINTING = {"true": True, "1": True, "yes": True, "none": False, "false": False, "0": False, "no": False}


def _cli_value(key: str, value: Any) -> Any:
    """Return a value as the calls get it: module lists are comma-separated text, and checkpointing is a word."""
    if key == "lora_target_modules" and isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    if key == "use_gradient_checkpointing":
        return _CHECKPOINTING.get(str(value).strip().lower(), "unsloth")
    return value
