"""Builds a trainer's config from a few options that describe a run; shared by all interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.trainers.registry import DEFAULT, all_trainers, trainer_named
from vramwise.trainers.wishes import Wishes

METHODS = ("none", "lora", "qlora")


def composing_trainers() -> tuple[str, ...]:
    """Return the names of the trainers that can write such a config in their own keys; the first is the default."""
    some = Wishes(model="some/model", adapter="lora")
    found = [one for one in all_trainers() if one.compose and one.identity.recognises(one.compose(some))]
    return tuple(one.name for one in found)


def composed(model: str | None, wished: Mapping[str, Any], trainer: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the trainer's name and the config values for `wished`: fields of Wishes except the model.

    Raises VramwiseError if they do not fit together. An adapter of "none" or "" means that every weight is trained.
    """
    if not model:
        raise VramwiseError("name a model, such as Qwen/Qwen3-8B")
    found = trainer_named(trainer or DEFAULT)
    if found.compose is None:
        known = ", ".join(composing_trainers())
        raise VramwiseError(f"without a file, only {known} are supported, not {found.title}: write a config")
    adapter = wished.get("adapter") or "none"
    if adapter not in METHODS:
        raise VramwiseError(f"unknown method {adapter}: choose one of {', '.join(METHODS)}")
    if adapter == "none" and wished.get("rank") is not None:
        raise VramwiseError("rank needs an adapter: set lora or qlora as well")
    said = {**wished, "adapter": None if adapter == "none" else adapter}
    return found.name, dict(found.compose(Wishes(model=model, **said)))
