"""One key: its type and default in each known version, its effect on memory, and the rules about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import groupby
from typing import Any, cast

from vramwise.bundled import bundled_json
from vramwise.documents.document import parse_document
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.opening.stacks import make_stack
from vramwise.rules.base import Rule
from vramwise.rules.discovery import common_rules
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import all_trainers, trainer_named
from vramwise.trainers.value_types import describe, parse_type
from vramwise.trainers.vocabulary import KeyFact, key_facts_of
from vramwise.types import Target

_MOST_RULES = 8
_WORD = re.compile(r"\w+")
# Fields that duplicate another one of the same key, which has the note.
_SAME_NOTE = {"recompute": "gradient_checkpointing", "precision_by_card": "precision", "int8_outliers": "quantization"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInVersion:
    """A key in one version of its trainer, or in several consecutive ones."""

    versions: tuple[str, ...]
    takes: str  # its type in words
    default: Any
    deprecated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPage:
    """Everything known about a key. `field` is the name that all trainers share, "" if there is none."""

    trainer: str
    key: str
    field: str
    memory: str
    names: tuple[str, ...]
    needs: str
    versions: tuple[KeyInVersion, ...]
    rules: tuple[str, ...]


def look_up(key: str, trainer: str | None = None) -> list[KeyPage]:
    """Return the pages of a key: of the named trainer, otherwise of every trainer that has it.

    Raises VramwiseError if none has it.
    """
    asked = [trainer_named(trainer)] if trainer else listing_trainers()
    pages = [page for one in asked if (page := _page(one, key.strip())) is not None]
    if not pages:
        raise VramwiseError(_unknown(key.strip(), asked))
    return pages


def listing_trainers() -> list[Trainer]:
    """Return trainers that list their keys, each vocabulary once: an engine that reads another's files adds none."""
    found: dict[str, Trainer] = {}
    for trainer in all_trainers():
        if key_facts_of(trainer, newest(trainer)):
            found.setdefault(trainer.package, trainer)
    return list(found.values())


def newest(trainer: Trainer) -> str:
    """Return the newest known version of a trainer."""
    return list(trainer.releases())[-1]


def memory_note(trainer: Trainer, key: str, fact: KeyFact) -> tuple[str, str]:
    """Return the field that a key sets and its effect on memory; empty strings if unknown."""
    field = fact.field or _fields(trainer.name).get(key, "")
    field = _SAME_NOTE.get(field, field)
    return field, fact.memory or notes().get(field, "")


@cache
def notes() -> Mapping[str, str]:
    """Return each run field's effect on memory."""
    return cast(Mapping[str, str], bundled_json("lookup/field_notes.json"))


@cache
def _fields(trainer: str) -> Mapping[str, str]:
    """Return key → field, as the trainer resolves an empty file."""
    one = trainer_named(trainer)
    stack = make_stack(one.package, one.releases(), look_around=False)
    target = Target(gpu=find_gpu("h100"), gpus=1, stack=stack, alloc_env={})
    run = one.resolve(parse_document("<text>", b"{}"), target, {})
    # If one key sets several fields, the first with a note is the one users ask about.
    ranked = sorted(run.keys.items(), key=lambda item: item[0] not in notes())
    found: dict[str, str] = {}
    for field, key in ranked:
        found.setdefault(key, field)
    return found


def _page(trainer: Trainer, key: str) -> KeyPage | None:
    by_version = {version: key_facts_of(trainer, version).get(key) for version in trainer.releases()}
    held = {version: fact for version, fact in by_version.items() if fact is not None}
    if not held:
        return None
    latest = list(held.values())[-1]
    field, memory = memory_note(trainer, key, latest)
    return KeyPage(
        trainer=trainer.name,
        key=key,
        field=field,
        memory=memory,
        names=latest.names,
        needs=latest.needs,
        versions=tuple(_in_versions(held)),
        rules=tuple(rule.id for rule in rules_about(trainer, key, field)),
    )


def _in_versions(held: Mapping[str, KeyFact]) -> Iterator[KeyInVersion]:
    """Yield consecutive versions with the same facts together."""
    said = {version: (takes(fact.type), fact.default, fact.deprecated) for version, fact in held.items()}
    for (words, default, deprecated), same in groupby(said, key=said.__getitem__):
        yield KeyInVersion(versions=tuple(same), takes=words, default=default, deprecated=deprecated)


def takes(written: str) -> str:
    """Return a type in words, including null: `true or false, or null`."""
    alternatives, optional = parse_type(written)
    kinds = {one.kind for one in alternatives if not one.limits}
    if "str" in kinds:  # the listed choices are then only suggestions
        written = re.sub(r"\|(caseless_)?one_of\([^)]*\)", "", f"|{written}").strip("|")
    said = "anything" if "any" in kinds else describe(written)
    return f"{said}, or null" if optional else said


def rules_about(trainer: Trainer, key: str, field: str = "") -> Sequence[Rule]:
    """Return the rules about a key: first those whose bad example contains it.

    A key inside a block has a common name (`path`): only rules count that name it in their explanation. Rules for all
    trainers refer to the shared `field` that the key sets.
    """
    block, _, name = key.rpartition(".")
    speaking = _speaking(trainer.name).get(name, ())
    if block:
        named = re.compile(rf"`(\S+[.: ])?{re.escape(name)}\b")
        speaking = [rule for rule in speaking if named.search(f"{rule.title}\n{rule.documentation}")]
    shared = [
        rule for rule in _speaking(trainer.name).get(field, ()) if rule in common_rules() and rule not in speaking
    ]
    return [*speaking, *shared][:_MOST_RULES]


@cache
def _speaking(trainer: str) -> Mapping[str, Sequence[Rule]]:
    """Return word → the rules that contain it, first those with the word in their bad example."""
    found: dict[str, list[Rule]] = {}
    every = (*common_rules(), *trainer_named(trainer).rules())
    shown = [frozenset(_WORD.findall(rule.bad)) for rule in every]
    for rule, words in zip(every, shown, strict=True):
        for word in words:
            found.setdefault(word, []).append(rule)
    for rule, words in zip(every, shown, strict=True):
        for word in frozenset(_WORD.findall(f"{rule.title}\n{rule.documentation}")) - words:
            found.setdefault(word, []).append(rule)
    return found


def known_keys(trainer: Trainer) -> frozenset[str]:
    """Return every key that some known version of a trainer has."""
    return frozenset(key for version in trainer.releases() for key in key_facts_of(trainer, version))


def _unknown(key: str, asked: Sequence[Trainer]) -> str:
    known = sorted(frozenset().union(*map(known_keys, asked)))
    whose = " or ".join(one.title for one in asked)
    if not known:
        return f"no key list for {whose}, only for {', '.join(one.name for one in listing_trainers())}"
    near = get_close_matches(key.lower()[:120], known, n=3, cutoff=0.6)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return f"{whose} has no key '{key[:120]}' in any known version{hint}"
