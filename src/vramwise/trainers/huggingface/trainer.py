"""transformers' Trainer: JSON or YAML that HfArgumentParser reads into TrainingArguments and a script's own classes."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import (
    ARGUMENT_RULES,
    SCRIPT_RULES,
    SPELLERS,
    WORDS,
    Vocabulary,
    side_files,
    spell_with,
    training_arguments,
    unknown_key,
)
from vramwise.trainers.arguments.dating import refused_by
from vramwise.trainers.arguments.trainer import (
    ArgumentsTrainer,
    argument_type_errors,
    schedule,
    strange_arguments,
    unknown_in_call,
)
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.base import DatasetBlock
from vramwise.trainers.huggingface.recognise import IDENTITY
from vramwise.trainers.huggingface.resolve import resolve_arguments
from vramwise.trainers.scripts.calls import PLAIN_ARGUMENTS
from vramwise.types import Document, RunSpec, Severity, Stack


def _vocabulary(stack: Stack) -> Vocabulary:
    """Return the keys of TrainingArguments, as read from JSON: nothing is converted."""
    return training_arguments(stack).unconverted()


def _datasets(document: Document) -> tuple[DatasetBlock, ...]:
    """Return `train_file` and `validation_file`, or a dataset's name."""
    named = ((key, document.values.get(key)) for key in ("train_file", "dataset_name", "validation_file"))
    return tuple(
        DatasetBlock(path=name, evaluation=key == "validation_file") for key, name in named if isinstance(name, str)
    )


def _strange_keys(run: RunSpec) -> Sequence[StrangeKey]:
    """Return keys that closely resemble an argument, or that another release has: a script has its own dataclasses.

    All of them where a script calls the class of transformers itself.
    """
    found = strange_arguments(run, _vocabulary(run.target.stack), IDENTITY.title)
    return found if _calls_library(run) else [strange for strange in found if strange.now is not None]


def _calls_library(run: RunSpec) -> bool:
    home = None if run.config.document.script is None else run.config.document.script.homes.get("args")
    return home is not None and home.name in PLAIN_ARGUMENTS and not home.unpacks


def _unknown_keys(run: RunSpec) -> tuple[Severity, str]:
    if _calls_library(run):
        return unknown_in_call(run, "transformers", "transformers")
    return Severity.WARNING, "the argument it resembles keeps its default"


TRAINER = ArgumentsTrainer(
    identity=IDENTITY,
    side_files=lambda document: side_files(document.values),
    datasets=_datasets,
    schedule=schedule,
    resolve=resolve_arguments,
    spell=lambda run, change: spell_with(SPELLERS, run, change),
    words=WORDS,
    vocabulary=lambda document, stack: _vocabulary(stack),
    vocabulary_of=lambda run: _vocabulary(run.target.stack),
    type_errors=lambda document, stack: argument_type_errors(document, _vocabulary(stack)),
    key_unknown=lambda key, stack: unknown_key(key, _vocabulary(stack), IDENTITY.title),
    strange_keys=_strange_keys,
    refused=lambda document, stack: refused_by(_vocabulary(stack), document),
    unknown_keys=_unknown_keys,
    rules=lambda: (*rules_below(ARGUMENT_RULES), *rules_below(SCRIPT_RULES)),
)
