"""Unsloth: TRL's trainers with its own kernels, loading and defaults, in scripts and files of `unsloth train`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vramwise.errors import VramwiseError
from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import ARGUMENT_RULES, Vocabulary, side_files, unknown_key
from vramwise.trainers.arguments import trainer as arguments
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.base import DatasetBlock
from vramwise.trainers.trl.datasets import dataset_blocks
from vramwise.trainers.trl.keys import KINDS
from vramwise.trainers.trl.kind import kind_name
from vramwise.trainers.unsloth.keys import since, vocabulary
from vramwise.trainers.unsloth.recognise import IDENTITY
from vramwise.trainers.unsloth.resolve import resolve_unsloth
from vramwise.trainers.unsloth.spell import WORDS, spell
from vramwise.types import Document, RunSpec, Schedule, Severity, Stack

if TYPE_CHECKING:
    from vramwise.trainers.starting import ScriptWriter, Starter


def _of_kind(kind: str) -> arguments.ArgumentsTrainer:
    if kind not in KINDS:
        raise VramwiseError(f"Unsloth has no training of kind '{kind}': choose one of {', '.join(KINDS)}")
    return _trainer(kind)


def _vocabulary_of(run: RunSpec) -> Vocabulary:
    return vocabulary(kind_name(run), run.target.stack)


def _strange_keys(run: RunSpec) -> Iterable[StrangeKey]:
    """Return arguments of a script that neither Unsloth nor TRL knows; for files, the command refuses them."""
    script = run.config.document.script is not None
    return arguments.strange_arguments(run, _vocabulary_of(run), IDENTITY.title) if script else ()


def _unknown_keys(run: RunSpec) -> tuple[Severity, str]:
    """Return the effect: the call stops; since 2026.8.11 the argument is dropped (models/rl_config_compat.py)."""
    if since(run.target.stack, 2026, 8, 11):
        return Severity.WARNING, "Unsloth leaves it out, with a warning"
    return Severity.ERROR, "the call stops with a TypeError"


def _datasets(document: Document) -> tuple[DatasetBlock, ...]:
    """Return `data.dataset` or `data.local_dataset` of a file, or a script's dataset if it is named."""
    data = document.values.get("data")
    if isinstance(data, Mapping):
        files = data.get("local_dataset")
        named = files if isinstance(files, list) and files else [data.get("dataset")]
        return tuple(DatasetBlock(path=path) for path in named if isinstance(path, str))
    return tuple(dataset_blocks(document.values))


def _schedule(document: Document) -> Schedule:
    """Return the schedule of TrainingArguments, or of the file's `training` section; `max_steps: 0` means none."""
    training = document.values.get("training")
    if not isinstance(training, Mapping):
        return arguments.schedule(document, "test_split_size")  # of scripts that split their data
    epochs, steps = training.get("num_epochs", 3), training.get("max_steps", 0)
    return Schedule(
        epochs=float(epochs) if isinstance(epochs, int | float) else 3.0,
        max_steps=steps if isinstance(steps, int) and steps > 0 else None,
    )


def _starter() -> Starter:
    from vramwise.trainers.unsloth import start  # late: only `new` needs it

    return start


def _script_writer() -> ScriptWriter:
    from vramwise.trainers.unsloth import script

    return script


def _trainer(kind: str) -> arguments.ArgumentsTrainer:
    """Return the trainer for one kind of training; the command's files are supervised."""

    def type_errors(document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """Return values of a script whose type cannot work; files are checked by the command itself."""
        script = document.script is not None
        return arguments.argument_type_errors(document, vocabulary(kind, stack)) if script else ()

    return arguments.ArgumentsTrainer(
        identity=IDENTITY,
        side_files=lambda document: side_files(document.values),
        datasets=_datasets,
        schedule=_schedule,
        resolve=lambda document, target, files: resolve_unsloth(document, target, files, kind),
        spell=spell,
        words=WORDS,
        of_kind=_of_kind,
        vocabulary=lambda document, stack: vocabulary(kind, stack),
        vocabulary_of=_vocabulary_of,
        type_errors=type_errors,
        key_unknown=lambda key, stack: unknown_key(key, vocabulary(kind, stack), IDENTITY.title),
        strange_keys=_strange_keys,
        unknown_keys=_unknown_keys,
        rules=lambda: (*rules_below("vramwise.trainers.unsloth.rules"), *rules_below(ARGUMENT_RULES)),
        starter=_starter,
        script_writer=_script_writer,
    )


TRAINER = _trainer("sft")
