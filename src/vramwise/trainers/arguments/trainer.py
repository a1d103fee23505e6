"""The base class of trainers built on TrainingArguments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vramwise.trainers.arguments.unknown_keys import StrangeKey, strange_keys
from vramwise.trainers.arguments.vocabulary import Vocabulary, argument_versions, training_arguments, unknown_key
from vramwise.types import Document, RunSpec, Schedule, Severity, Stack, version_parts

# The default of TrainingArguments, and more steps than any run has.
_EPOCHS = 3.0
_MOST = 1e12


class ArgumentsTrainer:
    """A base for trainers, which add recognition, resolving, spelling and their own keys."""

    name = ""
    package = ""
    title = ""
    # The key for the part of the data that is held out for evaluation, if there is one.
    held_out_key = ""
    # Its releases refuse a transformers newer than the one that they install with.
    caps_transformers = False

    def schedule(self, document: Document) -> Schedule:
        """Return the schedule from `num_train_epochs` (default: three) or `max_steps`."""
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
        """Return the seed for drawing held-out samples; None if every run draws differently."""
        return None if document.script is None else document.script.split_seed

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Return every key that this file may have; without a file, every key."""
        return training_arguments(stack)

    def vocabulary_of(self, run: RunSpec) -> Vocabulary:
        """Return every key that the file of a run may have."""
        return self.vocabulary(run.config.document, run.target.stack)

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """Return the severity of an unknown key, and its effect as the end of a sentence."""
        return Severity.ERROR, f"{self.title} stops"

    def release_with(self, run: RunSpec, key: str) -> str:
        """Return the newest known release that has an unknown key, if the run's own is only assumed; otherwise ""."""
        stack = run.target.stack
        newest = stack.parts("transformers")
        newer = [one for one in argument_versions() if not self.caps_transformers and version_parts(one) > newest]
        known = {"transformers": newer, self.package: list(self.releases())}
        for package, versions in known.items():
            release = stack.releases.get(package)
            for version in reversed(versions if release is not None and release.origin.kind == "assumed" else []):
                assert release is not None
                other = replace(stack, releases={**stack.releases, package: replace(release, version=version)})
                if key in self.vocabulary(run.config.document, other):
                    return f"{package} {version}"
        return ""

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions, oldest first."""
        return {}

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """Return the unknown keys of a file."""
        found = strange_keys(run.config.document.values, self.vocabulary_of(run), self.title, run.keys)
        return [one for one in found if in_config(run, one.key)]

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """Return the values whose type cannot work, each with a sentence."""
        words = self.vocabulary(document, stack)
        grave = ((one.key, one.sentence) for one in words.misreadings(document.values) if one.grave)
        return [*words.type_errors(document.values), *grave]

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """Return why a key is unknown; None for a key of the dataclasses."""
        return unknown_key(key, self.vocabulary(None, stack), self.title)


def _number(value: Any) -> float | None:
    """Return a number, quoted or not; None if it is not a usable one."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < _MOST else None


def trainer_of(run: RunSpec) -> ArgumentsTrainer | None:
    """Return the trainer of a run for rules that all of them share; None for other trainers."""
    from vramwise.trainers.registry import trainer_named

    found = trainer_named(run.trainer)
    return found if isinstance(found, ArgumentsTrainer) else None


def in_config(run: RunSpec, key: str) -> bool:
    """Return whether a key is written in the config; in a script, as an argument of the arguments' call."""
    script = run.config.document.script
    if script is None:
        return True
    home = script.homes.get("args")
    return home is not None and key in home.arguments
