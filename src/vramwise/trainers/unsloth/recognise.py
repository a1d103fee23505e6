"""Recognises files of Unsloth's command by their sections; scripts and notebooks are recognised by their calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.releases import installs
from vramwise.trainers.signs import Identity, words
from vramwise.trainers.unsloth.keys import CLI_KEYS

_TOP = words("model data training lora logging")
# Keys that no other tool nests in such sections.
_TELLING = frozenset(name for section, name in CLI_KEYS if section == "training") | words("training_type lora_r")


def is_training_config(values: Mapping[Any, Any]) -> bool:
    """Return whether these are the values of such a file: a model's name, and a section with the command's keys."""
    keys = {key for key in values if isinstance(key, str)}
    if not keys or not keys <= _TOP or not isinstance(values.get("model"), str | None):
        return False
    sections = [values.get(name) for name in ("training", "lora")]
    return any(isinstance(section, Mapping) and _TELLING & section.keys() for section in sections)


def might_be(keys: frozenset[str]) -> bool:
    """Return whether an unreadable text may be meant as one."""
    return keys >= {"model", "training"} and keys <= _TOP


IDENTITY = Identity(
    name="unsloth",
    title="Unsloth",
    package="unsloth",
    releases=lambda: installs(__file__),
    recognises=is_training_config,
    might_be=might_be,
    other_names=("Unsloth", "unsloth_zoo"),
)
