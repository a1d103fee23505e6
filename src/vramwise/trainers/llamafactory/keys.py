"""The keys of a training file by version: LLaMA-Factory's own and transformers' TrainingArguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from vramwise.trainers.arguments import Vocabulary, training_arguments
from vramwise.trainers.arguments.vocabulary import strict_facts
from vramwise.trainers.releases import versioned_facts
from vramwise.types import RunSpec, Stack

PACKAGE = "llamafactory"


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
