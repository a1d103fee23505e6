"""What is known about a trainer's keys, one by one: for editors and for those who look a key up.

A trainer lists its keys with `key_facts`; one that keeps a vocabulary of dataclasses' fields is asked for that. Whoever
asks about keys asks `key_facts_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from vramwise.trainers.base import Trainer
from vramwise.types import Document, Origin, Release, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFact:
    """One key in one version: its type in the grammar of `value_types`, and what else the trainer's facts say of it."""

    type: str
    default: Any = None  # None: there is none, or it is null
    names: tuple[str, ...] = ()  # names that it is known to take where the type itself allows any text
    needs: str = ""  # the plugin that must be loaded, or the key is not read
    deprecated: str = ""  # a sentence: what becomes of it, and what to write instead
    still_works: bool = False  # although it is deprecated
    field: str = ""  # the field of RunSpec that it decides, where its own name does not say so
    memory: str = ""  # what it does to memory, where the trainer's own facts say it
    brings_keys: bool = False  # a name that is not among `names` may bring keys of its own


@runtime_checkable
class ListsKeys(Protocol):
    """A trainer that lists its keys."""

    def key_facts(self, version: str) -> Mapping[str, KeyFact]:
        """Every key of a known version by its dotted name; `datasets[].path` is a key of a list's items."""
        ...

    def closed_blocks(self, version: str) -> frozenset[str]:
        """Blocks in which an unknown key stops the run."""
        ...


class Words(Protocol):
    """The fields of some dataclasses."""

    def keys(self) -> Iterable[str]:
        """Every key."""
        ...

    def type_of(self, key: str) -> str | None:
        """Its type."""
        ...

    def default(self, key: str) -> Any:
        """What it holds where nothing is written."""
        ...

    def meaning(self, key: str) -> str | None:
        """What it means for memory."""
        ...


@runtime_checkable
class HasWords(Protocol):
    """A trainer whose keys are the fields of dataclasses."""

    def vocabulary(self, document: Document | None, stack: Stack) -> Words:
        """The keys that a file may have; without one, all there are."""
        ...


def key_facts_of(trainer: Trainer, version: str) -> Mapping[str, KeyFact]:
    """The keys of a trainer in a known version; none where it lists none."""
    if isinstance(trainer, ListsKeys):
        return trainer.key_facts(version)
    return _of_words(trainer.vocabulary(None, _stack(trainer, version))) if isinstance(trainer, HasWords) else {}


def closed_blocks_of(trainer: Trainer, version: str) -> frozenset[str]:
    """Blocks in which an unknown key stops the run."""
    return trainer.closed_blocks(version) if isinstance(trainer, ListsKeys) else frozenset()


def _of_words(words: Words) -> dict[str, KeyFact]:
    return {
        key: KeyFact(type=words.type_of(key) or "any", default=words.default(key), memory=words.meaning(key) or "")
        for key in words.keys()  # noqa: SIM118 (it is no mapping)
    }


def _stack(trainer: Trainer, version: str) -> Stack:
    """A version with what it installs with."""
    origin = Origin(kind="assumed", why=f"what {trainer.package} {version} installs with")
    versions = {**trainer.releases()[version], trainer.package: version}
    return Stack(releases={name: Release(version=one, origin=origin) for name, one in versions.items()})
