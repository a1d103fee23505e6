"""The keys of a training file by version: LLaMA-Factory's own and transformers' TrainingArguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from vramwise.trainers.arguments import Vocabulary, training_arguments, versioned_facts
from vramwise.trainers.arguments.vocabulary import known_versions, strict_facts
from vramwise.types import RunSpec, Stack

PACKAGE = "llamafactory"
# What a release does not pin: the current torch; bitsandbytes and Liger are installed with their own extras.
_OPEN = {"torch": "2.13.0"}


def facts(stack: Stack) -> Mapping[str, Any]:
    """Return the facts about a stack's LLaMA-Factory."""
    return versioned_facts(stack.releases[PACKAGE].version, __file__)


def vocabulary(stack: Stack) -> Vocabulary:
    """Return every key that a training file may have."""
    return _vocabulary(stack.releases[PACKAGE].version, training_arguments(stack))


@cache
def _vocabulary(version: str, training: Vocabulary) -> Vocabulary:
    own = Vocabulary(versioned_facts(version, __file__))
    return (training | own).unconverted(strict_facts(__file__)["strict"])


def since(stack: Stack, *version: int) -> bool:
    """Return whether it is this release or a later one."""
    return stack.parts(PACKAGE) >= version


def release_of(run: RunSpec) -> str:
    """Return the version as text, for messages."""
    return run.target.stack.releases[PACKAGE].version


def releases() -> dict[str, dict[str, str]]:
    """Return the known versions, oldest first, with the newest version of each package that they allow."""
    return {
        version: _OPEN | _newest(versioned_facts(version, __file__)["pins"]) for version in known_versions(__file__)
    }


def _newest(pins: Mapping[str, str]) -> dict[str, str]:
    """Return the upper bound of each package that has one."""
    found: dict[str, str] = {}
    for package, wanted in pins.items():
        bounds = [bound.removeprefix("<=") for bound in wanted.split(",") if bound.startswith("<=")]
        found |= {package: bounds[0]} if bounds else {}
    return found
