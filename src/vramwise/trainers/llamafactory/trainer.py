"""LLaMA-Factory: the files of `llamafactory-cli train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import ARGUMENT_RULES, side_files, unknown_key
from vramwise.trainers.arguments.dating import refused_by
from vramwise.trainers.arguments.trainer import ArgumentsTrainer, argument_type_errors, schedule, strange_arguments
from vramwise.trainers.llamafactory.datasets import dataset_blocks
from vramwise.trainers.llamafactory.keys import vocabulary
from vramwise.trainers.llamafactory.recognise import IDENTITY
from vramwise.trainers.llamafactory.resolve import resolve_llamafactory
from vramwise.trainers.llamafactory.spell import WORDS, spell
from vramwise.types import Document, Severity

if TYPE_CHECKING:
    from vramwise.trainers.starting import Starter
    from vramwise.trainers.wishes import Wishes

# The default of TrainingArguments.
_SEED = 42


def _split_seed(document: Document) -> int | None:
    """Return `seed`, which also draws the held-out samples."""
    seed = document.values.get("seed", _SEED)
    return seed if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else None


def _compose(wishes: Wishes) -> Mapping[str, Any]:
    from vramwise.trainers.llamafactory.compose import compose  # late: only for runs without a file

    return compose(wishes)


def _starter() -> Starter:
    from vramwise.trainers.llamafactory import start

    return start


TRAINER = ArgumentsTrainer(
    identity=IDENTITY,
    side_files=lambda document: side_files(document.values),
    datasets=lambda document: tuple(dataset_blocks(document.values)),
    schedule=lambda document: schedule(document, "val_size", _split_seed),
    resolve=resolve_llamafactory,
    spell=spell,
    words=WORDS,
    vocabulary=lambda document, stack: vocabulary(stack),
    vocabulary_of=lambda run: vocabulary(run.target.stack),
    type_errors=lambda document, stack: argument_type_errors(document, vocabulary(stack)),
    key_unknown=lambda key, stack: unknown_key(key, vocabulary(stack), IDENTITY.title),
    strange_keys=lambda run: strange_arguments(run, vocabulary(run.target.stack), IDENTITY.title),
    refused=lambda document, stack: refused_by(vocabulary(stack), document),
    unknown_keys=lambda run: (Severity.ERROR, f"{IDENTITY.title} stops"),
    caps_transformers=True,
    rules=lambda: (*rules_below("vramwise.trainers.llamafactory.rules"), *rules_below(ARGUMENT_RULES)),
    compose=_compose,
    starter=_starter,
)
