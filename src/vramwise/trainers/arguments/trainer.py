"""What trainers that stand on TrainingArguments answer alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vramwise.trainers.arguments.strange import StrangeKey, strange_keys
from vramwise.trainers.arguments.vocabulary import Vocabulary, training_arguments, unknown_key
from vramwise.types import Document, RunSpec, Severity, Stack


class ArgumentsTrainer:
    """A base for trainers: they add recognising, resolving, spelling and their own keys."""

    name = ""
    package = ""
    title = ""

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Every key that this file may have; without one, every key there is."""
        return training_arguments(stack)

    def vocabulary_of(self, run: RunSpec) -> Vocabulary:
        """Every key that the file of a run may have."""
        return self.vocabulary(run.config.document, run.target.stack)

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """What becomes of a key that nobody knows, in words that end a sentence, and how bad that is."""
        return Severity.ERROR, f"{self.title} stops at it"

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """The keys of a file that nobody knows."""
        return strange_keys(run.config.document.values, self.vocabulary_of(run), self.title)

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """What cannot work, by type."""
        return list(self.vocabulary(document, stack).type_errors(document.values))

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """None for a key of the dataclasses."""
        return unknown_key(key, self.vocabulary(None, stack), self.title)


def trainer_of(run: RunSpec) -> ArgumentsTrainer | None:
    """The trainer of a run, for rules that all of them share; None for one of another sort."""
    from vramwise.trainers.registry import trainer_named

    found = trainer_named(run.trainer)
    return found if isinstance(found, ArgumentsTrainer) else None
