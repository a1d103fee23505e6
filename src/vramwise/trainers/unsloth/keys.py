"""Unsloth's keys by version: parameters of its calls, on top of TRL's configs, whose defaults it replaces.

A training of a script has the keys of TRL's config and, for Unsloth's own calls, those of `KEYS` in
scripts/generate_unsloth_facts.py. The command's YAML has sections; `CLI_KEYS` maps each of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from vramwise.models.names import is_wide
from vramwise.trainers.arguments import Vocabulary
from vramwise.trainers.releases import known_versions, versioned_facts
from vramwise.trainers.trl.keys import vocabulary as trl_vocabulary
from vramwise.types import Document, Stack

PACKAGE = "unsloth"
# Section and key of the command's file → key.
CLI_KEYS: Mapping[tuple[str, str], str] = {
    ("training", "max_seq_length"): "max_seq_length",
    ("training", "load_in_4bit"): "load_in_4bit",
    ("training", "output_dir"): "output_dir",
    ("training", "num_epochs"): "num_train_epochs",
    ("training", "learning_rate"): "learning_rate",
    ("training", "batch_size"): "per_device_train_batch_size",
    ("training", "gradient_accumulation_steps"): "gradient_accumulation_steps",
    ("training", "warmup_steps"): "warmup_steps",
    ("training", "max_steps"): "max_steps",
    ("training", "weight_decay"): "weight_decay",
    ("training", "random_seed"): "seed",
    ("training", "packing"): "packing",
    ("training", "gradient_checkpointing"): "use_gradient_checkpointing",
    ("lora", "lora_r"): "lora_r",
    ("lora", "lora_alpha"): "lora_alpha",
    ("lora", "lora_dropout"): "lora_dropout",
    ("lora", "target_modules"): "lora_target_modules",
    ("lora", "use_rslora"): "use_rslora",
    ("lora", "use_dora"): "use_dora",
}
SECTIONS = ("data", "training", "lora", "logging")
# Keys that follow from a script's calls or data.
_DERIVED = {"use_peft": ["bool", False], "use_dora": ["bool", False], "fast_model": ["bool", False]}
# Arguments that Unsloth adds to TRL's configs.
_ADDED = {
    name: ["any?"]
    for name in (
        *("embedding_learning_rate", "vllm_sampling_params", "unsloth_num_chunks", "unsloth_grpo_mini_batch"),
        *("unsloth_logit_chunk_multiplier", "context_parallel_size", "context_parallel_backend"),
    )
}


def release_of(stack: Stack) -> str:
    """Return the version of Unsloth as text."""
    release = stack.releases.get(PACKAGE)
    return release.version if release else known_versions(__file__)[-1]


def since(stack: Stack, *version: int) -> bool:
    """Return whether it is this release or a later one."""
    return stack.parts(PACKAGE) >= version


def facts(stack: Stack) -> Mapping[str, Any]:
    """Return everything known about the stack's Unsloth."""
    return versioned_facts(release_of(stack), __file__)


def vocabulary(kind: str | None, stack: Stack) -> Vocabulary:
    """Return every key of one kind of training."""
    return _vocabulary(release_of(stack), trl_vocabulary(kind, stack))


@cache
def _vocabulary(version: str, below: Vocabulary) -> Vocabulary:
    found = versioned_facts(version, __file__)
    replaced = {
        key: [below.type_of(key), default] for key, default in found.get("replaced", {}).items() if below.type_of(key)
    }
    keys = {**replaced, **found["keys"], **_DERIVED, **_ADDED}
    return below | Vocabulary({"keys": keys, "memory": found["memory"]})


def is_cli(document: Document) -> bool:
    """Return whether it is a file of Unsloth's command: sections, and not a script."""
    return document.script is None and any(isinstance(document.values.get(name), Mapping) for name in SECTIONS)


def cli_defaults(stack: Stack) -> dict[str, Any]:
    """Return the defaults of the command's file, by key."""
    sections = facts(stack).get("sections", {})
    return {
        key: sections[section][name][1]
        for (section, name), key in CLI_KEYS.items()
        if len(sections.get(section, {}).get(name, ())) > 1
    }


def dynamic_checkpoint(name: object) -> str | None:
    """Return the 4-bit checkpoint with 16-bit layers that is loaded instead of a model, or None."""
    newest = versioned_facts(known_versions(__file__)[-1], __file__)
    found: str | None = newest["dynamic"].get(str(name or "").lower())
    return found


def wide_checkpoint(name: str | None) -> str | None:
    """Return the checkpoint that is loaded instead of a model if its 16-bit layers take much more memory, or None."""
    found = dynamic_checkpoint(name)
    return found if is_wide(found) else None
