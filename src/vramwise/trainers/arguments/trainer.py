"""What trainers built on TrainingArguments have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vramwise.trainers.arguments.dating import Refused, dated, stops_from
from vramwise.trainers.arguments.unknown_keys import StrangeKey, strange_keys, written_names
from vramwise.trainers.arguments.vocabulary import Vocabulary, argument_versions
from vramwise.trainers.base import Trainer
from vramwise.types import Document, RunSpec, Schedule, Severity, Stack, version_parts

# The default of TrainingArguments, and more steps than any run has.
_EPOCHS = 3.0
_MOST = 1e12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArgumentsTrainer(Trainer):
    """A trainer built on TrainingArguments: its keys are the fields of dataclasses."""

    # Returns every key that a file may have; without a file, every key.
    vocabulary: Callable[[Document | None, Stack], Vocabulary]
    # Returns every key that the file of a run may have.
    vocabulary_of: Callable[[RunSpec], Vocabulary]
    # Returns the unknown keys of a file.
    strange_keys: Callable[[RunSpec], Iterable[StrangeKey]]
    # Returns what the releases of a stack refuse of a file; None: its releases refuse nothing that they do not know.
    refused: Refused | None = None
    # Returns the severity of an unknown key, and its effect as the end of a sentence.
    unknown_keys: Callable[[RunSpec], tuple[Severity, str]]
    # Its releases refuse a transformers newer than the one that they install with.
    caps_transformers: bool = False

    def dated(self, document: Document, stack: Stack) -> tuple[tuple[str, str, str], ...]:
        """Return the newest releases that take a file, as package, version and why; empty if the assumed ones do."""
        return () if self.refused is None else dated(document, stack, self.package, self.releases(), self.refused)

    def oldest_for(self, document: Document, stack: Stack) -> Stack | None:
        """Return the stack with the oldest known release that takes as much of a file as the stack's own, or None."""
        if self.refused is None:
            return None
        now = self.refused(document, stack)
        stacks = (stack.at(self.package, version, installs) for version, installs in self.releases().items())
        return next((one for one in stacks if self.refused(document, one) <= now), None)

    def taken_by(self, document: Document, stack: Stack, key: str) -> str:
        """Return the newest known release that takes the value of a key which this stack's refuses; "" if none does."""
        if found := Trainer.taken_by(self, document, stack, key):
            return found
        for version in reversed(argument_versions()):
            if key not in dict(self.type_errors(document, stack.at("transformers", version))):
                return f"transformers {version}"
        return ""

    def _packages(self) -> dict[str, tuple[str, ...]]:
        """Return the known releases of the packages whose newer ones a run may get: its own, and transformers."""
        newer = {} if self.caps_transformers else {"transformers": tuple(argument_versions())}
        return {self.package: tuple(self.releases()), **newer}

    def stopping(self, run: RunSpec) -> Sequence[str]:
        """Return the arguments that a later release refuses, in order, if the run's own is assumed and takes them.

        Not those that a script passes to a trainer itself: a rule of their own reports them.
        """
        document, stack = run.config.document, run.target.stack
        later = stack
        for package, version in ((one, versions[-1]) for one, versions in self._packages().items()):
            release = stack.releases.get(package)
            if release is not None and release.origin.kind == "assumed" and release.version != version:
                later = later.at(package, version)
        if self.refused is None or later is stack:
            return ()
        home = None if document.script is None else document.script.homes.get("trainer")
        passed = home.arguments.keys() if home is not None else ()
        return sorted(self.refused(document, later).difference(self.refused(document, stack), passed))

    def stops_from(self, run: RunSpec, key: str) -> str:
        """Return the release from which on a key of a file stops it, if the run is assumed to use an older one."""
        document, stack, refused = run.config.document, run.target.stack, self.refused
        if refused is None:
            return ""
        known = self._packages()
        assumed = [one for one in known if one in stack.releases and stack.releases[one].origin.kind == "assumed"]
        stops = ((one, stops_from(document, stack, one, known[one], refused, key)) for one in assumed)
        return next((f"{package} {version}" for package, version in stops if version), "")

    def release_with(self, run: RunSpec, key: str) -> str:
        """Return the newest release that has an unknown key, if the run's own, older one is only assumed; else ""."""
        stack = run.target.stack
        newer = () if self.caps_transformers else argument_versions()
        known = {"transformers": newer, self.package: tuple(self.releases())}
        for package, versions in known.items():
            release = stack.releases.get(package)
            if release is None or release.origin.kind != "assumed":
                continue
            for version in reversed([one for one in versions if version_parts(one) > release.parts]):
                other = replace(stack, releases={**stack.releases, package: replace(release, version=version)})
                if key in self.vocabulary(run.config.document, other):
                    return f"{package} {version}"
        return ""


def split_seed(document: Document) -> int | None:
    """Return the seed with which a script draws held-out samples; None if every run draws differently."""
    return None if document.script is None else document.script.split_seed


def schedule(
    document: Document, held_out_key: str = "", seed_of: Callable[[Document], int | None] = split_seed
) -> Schedule:
    """Return the schedule from `num_train_epochs` (default: three) or `max_steps`.

    `held_out_key`: the key for the part of the data that is held out for evaluation, if there is one.
    """
    values = document.values
    epochs, steps = _number(values.get("num_train_epochs")), _number(values.get("max_steps"))
    held = _number(values.get(held_out_key)) if held_out_key else None
    return Schedule(
        epochs=_EPOCHS if epochs is None else max(0.0, epochs),
        max_steps=int(steps) if steps is not None and steps >= 1 else None,
        held_out=max(0.0, held or 0.0),
        split_seed=seed_of(document),
    )


def strange_arguments(run: RunSpec, words: Vocabulary, title: str) -> list[StrangeKey]:
    """Return the keys of a file, or of the arguments' call in a script, that its trainer does not have."""
    found = strange_keys(written_names(run.config.document), words, title, run.keys)
    return [one for one in found if in_config(run, one.key)]


def unknown_in_call(run: RunSpec, package: str, title: str) -> tuple[Severity, str]:
    """Return the severity of an unknown argument of a script's call, and its effect."""
    release = run.target.stack.releases[package]
    if release.origin.kind == "assumed":
        unpinned = "" if package in run.target.stack.bounds else " (no version is pinned here)"
        return Severity.WARNING, f"{title} {release.version} stops with a TypeError{unpinned}"
    said = "" if release.known else f" in {title} {release.version}"
    return Severity.ERROR, f"the call stops with a TypeError{said}"


def argument_type_errors(document: Document, words: Vocabulary) -> list[tuple[str, str]]:
    """Return the values whose type cannot work, each with a sentence."""
    grave = ((one.key, one.sentence) for one in words.misreadings(document.values) if one.grave)
    return [*words.type_errors(document.values), *grave]


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
