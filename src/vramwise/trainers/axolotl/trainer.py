"""Axolotl: its YAML configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramwise.rules.discovery import rules_below
from vramwise.trainers.axolotl.recognise import IDENTITY
from vramwise.trainers.axolotl.resolve import resolve_axolotl
from vramwise.trainers.axolotl.schema import elsewhere, history, schema_in, schema_of_version, suggest
from vramwise.trainers.axolotl.spell import WORDS, spell
from vramwise.trainers.base import DatasetBlock, Trainer
from vramwise.types import Document, Schedule, Stack

if TYPE_CHECKING:
    from vramwise.trainers.starting import Starter
    from vramwise.trainers.vocabulary import KeyFact
    from vramwise.trainers.wishes import Wishes


def _side_files(document: Document) -> tuple[str, ...]:
    """Return the name of the DeepSpeed JSON file, if any."""
    name = document.values.get("deepspeed")
    return (name,) if isinstance(name, str) else ()


def _datasets(document: Document) -> tuple[DatasetBlock, ...]:
    from vramwise.trainers.axolotl.datasets import dataset_blocks  # late: `check` reads no data

    return tuple(dataset_blocks(document.values))


def _schedule(document: Document) -> Schedule:
    from vramwise.trainers.axolotl.datasets import schedule

    return schedule(document.values)


def unknown_key(key: str, stack: Stack, title: str) -> str | None:
    """Return why a key is unknown; None for a key of the schema or of a plugin, or a renamed one."""
    schema = schema_in(stack)
    first = key.strip().partition(".")[0]
    known = schema.keys() | schema.plugin_keys().keys() | schema.deprecations().keys()
    if first in known:
        return None
    if when := elsewhere(history(first), schema.version):
        return f"{first} {when}, and this is {schema.short}"
    near = " or ".join(suggest(first, known))
    return f"{title} knows no key '{first}'" + (f": did you mean {near}?" if near else "")


def _key_facts(version: str) -> Mapping[str, KeyFact]:
    from vramwise.trainers.axolotl.keys import key_facts  # late: for editors and looking up keys

    return key_facts(version)


def _closed_blocks(version: str) -> frozenset[str]:
    schema = schema_of_version(version)
    return frozenset(block for block in schema.blocks() if schema.refuses_unknown(block))


def _compose(wishes: Wishes) -> Mapping[str, Any]:
    from vramwise.trainers.axolotl.compose import compose  # late: only for runs without a file

    return compose(wishes)


def _starter() -> Starter:
    from vramwise.trainers.axolotl import start

    return start


TRAINER = Trainer(
    identity=IDENTITY,
    side_files=_side_files,
    datasets=_datasets,
    schedule=_schedule,
    resolve=resolve_axolotl,
    spell=spell,
    words=WORDS,
    type_errors=lambda document, stack: list(schema_in(stack).type_errors(document.values)),
    key_unknown=lambda key, stack: unknown_key(key, stack, IDENTITY.title),
    rules=lambda: rules_below("vramwise.trainers.axolotl.rules"),
    key_facts=_key_facts,
    closed_blocks=_closed_blocks,
    compose=_compose,
    starter=_starter,
)
