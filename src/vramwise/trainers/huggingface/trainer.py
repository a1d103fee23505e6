"""transformers' Trainer: files of TrainingArguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vramwise.rules.base import Rule
from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import (
    ARGUMENT_RULES,
    SCRIPT_RULES,
    SPELLERS,
    WORDS,
    ArgumentsTrainer,
    Vocabulary,
    side_files,
    spell_with,
    training_arguments,
)
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.base import DatasetBlock, SideFiles, Spelling
from vramwise.types import Change, Document, RunSpec, Severity, Stack, Target

_BESIDES = {"accelerate": "1.15.0", "peft": "0.21.2", "liger-kernel": "0.8.5"}


class HfTrainer(ArgumentsTrainer):
    """JSON (or YAML) that HfArgumentParser reads into TrainingArguments and a script's own dataclasses."""

    name = "hf-trainer"
    package = "transformers"
    title = "transformers' Trainer"

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Recognise a file by several keys of TrainingArguments."""
        from vramwise.trainers.huggingface.recognise import is_arguments

        return is_arguments(values)

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Return the keys of TrainingArguments, as read from JSON: nothing is converted."""
        return training_arguments(stack).unconverted()

    def might_be(self, keys: frozenset[str]) -> bool:
        """Return False: dumps are written by programs, so an unreadable text is not one."""
        return False

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Return the JSON files of DeepSpeed and FSDP."""
        return side_files(document.values)

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """Return `train_file` and `validation_file`, or a dataset's name."""
        named = ((key, document.values.get(key)) for key in ("train_file", "dataset_name", "validation_file"))
        return tuple(
            DatasetBlock(path=name, evaluation=key == "validation_file") for key, name in named if isinstance(name, str)
        )

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return the run, as far as arguments decide it."""
        from vramwise.trainers.huggingface.resolve import resolve_arguments

        return resolve_arguments(document, target, side_files)

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change as edits of the file."""
        return spell_with(SPELLERS, run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """Return the lines to write for a change."""
        return WORDS.get(change_id, ())

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """Return a warning: a script has its own dataclasses, so only keys that resemble an argument are reported."""
        return Severity.WARNING, "the argument it resembles keeps its default"

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """Return keys that closely resemble an argument that is not written."""
        return [strange for strange in super().strange_keys(run) if strange.now is not None]

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the versions of transformers whose arguments are known."""
        from vramwise.trainers.arguments.vocabulary import argument_versions

        return dict.fromkeys(argument_versions(), _BESIDES)

    def rules(self) -> Sequence[Rule]:
        """Return the rules that all arguments share, and those of scripts."""
        return (*rules_below(ARGUMENT_RULES), *rules_below(SCRIPT_RULES))
