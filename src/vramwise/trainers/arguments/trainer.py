"""What trainers that stand on TrainingArguments answer alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramwise.trainers.arguments.vocabulary import Vocabulary, training_arguments, unknown_key
from vramwise.types import Document, RunSpec, Severity, Stack


class ArgumentsTrainer:
    """A base for trainers: they add recognising, resolving, spelling and their own keys."""

    name = ""
    package = ""
    title = ""

    def vocabulary(self, values: Mapping[Any, Any], stack: Stack) -> Vocabulary:
        """Every key that a file with these values may have; without values, every key there is."""
        return training_arguments(stack)

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """What becomes of a key that nobody knows, in words that end a sentence, and how bad that is."""
        return Severity.ERROR, f"{self.title} stops at it"

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """What cannot work, by type."""
        return list(self.vocabulary(document.values, stack).type_errors(document.values))

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """None for a key of the dataclasses."""
        return unknown_key(key, self.vocabulary({}, stack), self.title)
