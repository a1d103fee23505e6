"""Unsloth as a trainer: TRL's trainers with its own kernels, loading and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramwise.errors import VramwiseError
from vramwise.rules.base import Rule
from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import ARGUMENT_RULES, ArgumentsTrainer, Vocabulary, side_files
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.base import DatasetBlock, SideFiles, Spelling
from vramwise.types import Change, Document, RunSpec, Schedule, Severity, Stack, Target

if TYPE_CHECKING:
    from vramwise.trainers.starting import Start, Starter


class Unsloth(ArgumentsTrainer):
    """Scripts and notebooks that train with Unsloth, and files of `unsloth train --config`."""

    name = "unsloth"
    package = "unsloth"
    title = "Unsloth"
    other_names = ("Unsloth", "unsloth_zoo")  # in logs
    held_out_key = "test_split_size"  # of scripts that split their data
    script_first = True

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind  # the kind of training; the command's files are supervised

    def of_kind(self, kind: str) -> Unsloth:
        """Return the trainer for one kind of training; raises VramwiseError for an unknown kind."""
        from vramwise.trainers.trl.keys import KINDS

        if kind not in KINDS:
            raise VramwiseError(f"Unsloth has no training of kind '{kind}': choose one of {', '.join(KINDS)}")
        return Unsloth(kind)

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Recognise a file of its command by its sections."""
        from vramwise.trainers.unsloth.recognise import is_training_config

        return is_training_config(values)

    def might_be(self, keys: frozenset[str]) -> bool:
        """Return whether the keys are such sections."""
        from vramwise.trainers.unsloth.recognise import might_be

        return might_be(keys)

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Return the keys of the kind of training, and Unsloth's own."""
        from vramwise.trainers.unsloth.keys import vocabulary

        return vocabulary(self._kind or "sft", stack)

    def vocabulary_of(self, run: RunSpec) -> Vocabulary:
        """Return the keys of the run's kind of training."""
        from vramwise.trainers.trl.kind import kind_name
        from vramwise.trainers.unsloth.keys import vocabulary

        return vocabulary(kind_name(run), run.target.stack)

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """Return arguments of a script that neither Unsloth nor TRL knows; for files, the command refuses them."""
        return super().strange_keys(run) if run.config.document.script is not None else ()

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """Return the effect: the call stops; since 2026.10 the argument is dropped (models/rl_config_compat.py)."""
        from vramwise.trainers.unsloth.keys import since

        if since(run.target.stack, 2026, 10):
            return Severity.WARNING, "Unsloth leaves it out, with a warning"
        return Severity.ERROR, "the call stops with a TypeError"

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """Return values of a script whose type cannot work; files are checked by the command itself."""
        return super().type_errors(document, stack) if document.script is not None else ()

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Return the JSON files of DeepSpeed and FSDP."""
        return side_files(document.values)

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """Return `data.dataset` or `data.local_dataset` of a file, or a script's dataset if it is named."""
        data = document.values.get("data")
        if isinstance(data, Mapping):
            files = data.get("local_dataset")
            named = files if isinstance(files, list) and files else [data.get("dataset")]
            return tuple(DatasetBlock(path=path) for path in named if isinstance(path, str))
        from vramwise.trainers.trl.datasets import dataset_blocks

        return tuple(dataset_blocks(document.values))

    def schedule(self, document: Document) -> Schedule:
        """Return the schedule of TrainingArguments, or of the file's `training` section; `max_steps: 0` means none."""
        training = document.values.get("training")
        if not isinstance(training, Mapping):
            return super().schedule(document)
        epochs, steps = training.get("num_epochs", 3), training.get("max_steps", 0)
        return Schedule(
            epochs=float(epochs) if isinstance(epochs, int | float) else 3.0,
            max_steps=steps if isinstance(steps, int) and steps > 0 else None,
        )

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return the run as this version resolves it."""
        from vramwise.trainers.unsloth.resolve import resolve_unsloth

        return resolve_unsloth(document, target, side_files, self._kind or "sft")

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change as edits of the script or file."""
        from vramwise.trainers.unsloth.spell import spell

        return spell(run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """Return the lines to write for a change."""
        from vramwise.trainers.unsloth.spell import WORDS

        return WORDS.get(change_id, ())

    def starter(self) -> Starter:
        """Return the module that writes new configs."""
        from vramwise.trainers.unsloth import start

        return start

    def script(self, values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
        """Return a script like Unsloth's notebooks."""
        from vramwise.trainers.unsloth.script import script

        return script(values, start, comments, head)

    def launch_script(self, run: RunSpec, path: str) -> str:
        """Return the command that trains a script."""
        from vramwise.trainers.unsloth.start import launch_script

        return launch_script(run, path)

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions with what they install with."""
        from vramwise.trainers.unsloth.keys import releases

        return releases()

    def rules(self) -> Sequence[Rule]:
        """Return the rules about its own keys, and those that all arguments share."""
        return (*rules_below("vramwise.trainers.unsloth.rules"), *rules_below(ARGUMENT_RULES))
