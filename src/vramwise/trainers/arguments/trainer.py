"""What trainers built on TrainingArguments have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from vramwise.trainers.arguments.unknown_keys import StrangeKey, strange_keys
from vramwise.trainers.arguments.vocabulary import Vocabulary, training_arguments, unknown_key
from vramwise.types import Document, RunSpec, Schedule, Severity, Stack

# What TrainingArguments has where nothing is said, and more steps than anybody counts.
_EPOCHS = 3.0
_MOST = 1e12


class ArgumentsTrainer:
    """A base for trainers: they add recognising, resolving, spelling and their own keys."""

    name = ""
    package = ""
    title = ""
    # The key that says which part of the data is held out for evaluation, if there is one.
    held_out_key = ""

    def schedule(self, document: Document) -> Schedule:
        """`num_train_epochs`, three where nothing is said, or `max_steps`."""
        values = document.values
        epochs, steps = _number(values.get("num_train_epochs")), _number(values.get("max_steps"))
        held = _number(values.get(self.held_out_key)) if self.held_out_key else None
        return Schedule(
            epochs=_EPOCHS if epochs is None else max(0.0, epochs),
            max_steps=int(steps) if steps is not None and steps >= 1 else None,
            held_out=max(0.0, held or 0.0),
            split_seed=self.split_seed(document),
        )

    def split_seed(self, document: Document) -> int | None:
        """The seed by which held-out samples are drawn; None where every run draws anew."""
        return None if document.script is None else document.script.split_seed

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Every key that this file may have; without one, every key there is."""
        return training_arguments(stack)

    def vocabulary_of(self, run: RunSpec) -> Vocabulary:
        """Every key that the file of a run may have."""
        return self.vocabulary(run.config.document, run.target.stack)

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """What becomes of a key that nobody knows, in words that end a sentence, and how bad that is."""
        return Severity.ERROR, f"{self.title} stops"

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """The keys of a file that nobody knows."""
        found = strange_keys(run.config.document.values, self.vocabulary_of(run), self.title, run.keys)
        return [one for one in found if in_config(run, one.key)]

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """What cannot work, by type."""
        words = self.vocabulary(document, stack)
        grave = ((one.key, one.sentence) for one in words.misreadings(document.values) if one.grave)
        return [*words.type_errors(document.values), *grave]

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """None for a key of the dataclasses."""
        return unknown_key(key, self.vocabulary(None, stack), self.title)


def _number(value: Any) -> float | None:
    """A number, in quotes or not; None where it is none that could be counted with."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < _MOST else None


def trainer_of(run: RunSpec) -> ArgumentsTrainer | None:
    """The trainer of a run, for rules that all of them share; None for one of another sort."""
    from vramwise.trainers.registry import trainer_named

    found = trainer_named(run.trainer)
    return found if isinstance(found, ArgumentsTrainer) else None


def in_config(run: RunSpec, key: str) -> bool:
    """Whether a key is written in the config: of a script, as an argument of the call that holds the arguments."""
    script = run.config.document.script
    if script is None:
        return True
    home = script.homes.get("args")
    return home is not None and key in home.arguments
