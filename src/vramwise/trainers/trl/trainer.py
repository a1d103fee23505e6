"""TRL: the YAML files of its command, and scripts that call its trainers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from vramwise.errors import VramwiseError
from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import ARGUMENT_RULES, SCRIPT_RULES, Vocabulary, side_files, unknown_key
from vramwise.trainers.arguments.dating import refused_by
from vramwise.trainers.arguments.trainer import (
    ArgumentsTrainer,
    argument_type_errors,
    in_config,
    schedule,
    unknown_in_call,
)
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.trl.datasets import dataset_blocks
from vramwise.trainers.trl.keys import (
    ALL_PROJECT_KEYS,
    COMMAND_KEYS,
    KINDS,
    launcher_keys,
    not_taken,
    strange_keys,
    vocabulary,
)
from vramwise.trainers.trl.kind import kind_name, kind_of
from vramwise.trainers.trl.recognise import IDENTITY
from vramwise.trainers.trl.resolve import resolve_trl
from vramwise.trainers.trl.spell import WORDS, spell
from vramwise.types import Document, RunSpec, Severity, Stack

if TYPE_CHECKING:
    from vramwise.trainers.starting import ScriptWriter, Starter
    from vramwise.trainers.wishes import Wishes


def _of_kind(kind: str) -> ArgumentsTrainer:
    if kind not in KINDS:
        raise VramwiseError(f"TRL has no training kind '{kind}': choose one of {', '.join(KINDS)}")
    return _trainer(kind)


def _vocabulary_of(run: RunSpec) -> Vocabulary:
    return vocabulary(kind_name(run), run.target.stack)


def _strange_keys(run: RunSpec) -> Iterable[StrangeKey]:
    """Return keys that TRL, its command, its launcher and a project's own script do not read."""
    return [one for one in strange_keys(run, _vocabulary_of(run)) if in_config(run, one.key)]


def _refused(document: Document, stack: Stack, kind: str | None) -> frozenset[str]:
    """Return what TRL refuses of a file, or of a script's calls."""
    known = COMMAND_KEYS | launcher_keys(stack) | ALL_PROJECT_KEYS
    return (refused_by(vocabulary(kind_of(document, kind).name, stack), document) - known) | not_taken(document, stack)


def _unknown_keys(run: RunSpec) -> tuple[Severity, str]:
    """Return the effect: the command passes them to `accelerate launch`, which stops; a module drops them."""
    if run.config.document.script is not None:
        return unknown_in_call(run, "trl", "TRL")
    if run.target.launcher == "module":
        return Severity.WARNING, "the script drops it without warning"
    return Severity.ERROR, "the command passes it on to `accelerate launch`, which stops"


def _key_unknown(key: str, stack: Stack) -> str | None:
    """Return why a key is unknown; None for a key of any kind of training, the command or its launcher."""
    first = key.strip().partition(".")[0]
    if first in COMMAND_KEYS | ALL_PROJECT_KEYS or first in launcher_keys(stack):
        return None
    return unknown_key(key, vocabulary(None, stack), IDENTITY.title)


def _starter() -> Starter:
    from vramwise.trainers.trl import start  # late: only `new` needs it

    return start


def _script_writer() -> ScriptWriter:
    from vramwise.trainers.trl import script

    return script


def _trainer(kind: str | None) -> ArgumentsTrainer:
    """Return the trainer; `kind` is the kind of training that the user chose, None if the file decides."""

    def vocabulary_in(document: Document | None, stack: Stack) -> Vocabulary:
        return vocabulary(None if document is None else kind_of(document, kind).name, stack)

    def compose(wishes: Wishes) -> Mapping[str, Any]:
        from vramwise.trainers.trl.compose import compose  # late: only for runs without a file

        if kind not in (None, "sft"):
            raise VramwiseError(f"without a file, only supervised fine-tuning is supported: for {kind}, write a config")
        return compose(wishes)

    return ArgumentsTrainer(
        identity=IDENTITY,
        side_files=lambda document: side_files(document.values, "accelerate_config", "config_file"),
        datasets=lambda document: tuple(dataset_blocks(document.values)),
        schedule=lambda document: schedule(document, "test_split_size"),
        resolve=lambda document, target, files: resolve_trl(document, target, files, kind),
        spell=spell,
        words=WORDS,
        of_kind=_of_kind,
        vocabulary=vocabulary_in,
        vocabulary_of=_vocabulary_of,
        type_errors=lambda document, stack: argument_type_errors(document, vocabulary_in(document, stack)),
        key_unknown=_key_unknown,
        strange_keys=_strange_keys,
        refused=lambda document, stack: _refused(document, stack, kind),
        unknown_keys=_unknown_keys,
        drops_unknown=True,
        rules=lambda: (
            *rules_below("vramwise.trainers.trl.rules"),
            *rules_below(ARGUMENT_RULES),
            *rules_below(SCRIPT_RULES),
        ),
        compose=compose,
        starter=_starter,
        script_writer=_script_writer,
    )


TRAINER = _trainer(None)
