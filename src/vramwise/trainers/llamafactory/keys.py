"""The keys of a training file: LLaMA-Factory's own and, below them, transformers' TrainingArguments, by version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from vramwise.trainers.arguments import Vocabulary, training_arguments, versioned_facts
from vramwise.trainers.arguments.vocabulary import known_versions, strict_facts
from vramwise.types import RunSpec, Stack

PACKAGE = "llamafactory"
# What a release leaves open: torch as it is today, and bitsandbytes and Liger, which come with their own extras.
_OPEN = {"torch": "2.13.0"}


def facts(stack: Stack) -> Mapping[str, Any]:
    """What is known of the LLaMA-Factory of a stack."""
    return versioned_facts(stack.releases[PACKAGE].version, __file__)


def vocabulary(stack: Stack) -> Vocabulary:
    """Every key that a training file may have."""
    return _vocabulary(stack.releases[PACKAGE].version, training_arguments(stack))


@cache
def _vocabulary(version: str, training: Vocabulary) -> Vocabulary:
    own = Vocabulary(versioned_facts(version, __file__))
    return (training | own).unconverted(strict_facts(__file__)["strict"])


def since(stack: Stack, *version: int) -> bool:
    """Whether it is this release or a later one."""
    return stack.parts(PACKAGE) >= version


def release_of(run: RunSpec) -> str:
    """The version, for sentences."""
    return run.target.stack.releases[PACKAGE].version


def releases() -> dict[str, dict[str, str]]:
    """Known versions, the oldest first, with the newest version of each package that they allow."""
    return {
        version: _OPEN | _newest(versioned_facts(version, __file__)["pins"]) for version in known_versions(__file__)
    }


def _newest(pins: Mapping[str, str]) -> dict[str, str]:
    """The upper bound of each package that has one."""
    found: dict[str, str] = {}
    for package, wanted in pins.items():
        bounds = [bound.removeprefix("<=") for bound in wanted.split(",") if bound.startswith("<=")]
        found |= {package: bounds[0]} if bounds else {}
    return found
