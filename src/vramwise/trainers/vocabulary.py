"""What is known about each key of a trainer, for editors and for looking up keys.

A trainer lists its keys with `key_facts`, or has a vocabulary of dataclass fields. Callers use `key_facts_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from vramwise.trainers.base import Trainer
from vramwise.types import Document, Origin, Release, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFact:
    """One key in one version: its type in the grammar of `value_types`, and other facts."""

    type: str
    default: Any = None  # None: there is none, or it is null
    names: tuple[str, ...] = ()  # names that it is known to accept if the type allows any text
    needs: str = ""  # the plugin without which the key is not read
    deprecated: str = ""  # a sentence: what happens to it, and what to write instead
    still_works: bool = False  # it is deprecated but still works
    field: str = ""  # the field of RunSpec that it sets, if its name differs
    memory: str = ""  # its effect on memory, if the trainer's own facts say so
    brings_keys: bool = False  # a name that is not in `names` may bring its own keys


@runtime_checkable
class ListsKeys(Protocol):
    """A trainer that lists its keys."""

    def key_facts(self, version: str) -> Mapping[str, KeyFact]:
        """Return every key of a known version by its dotted name; `datasets[].path` is a key of a list's items."""
        ...

    def closed_blocks(self, version: str) -> frozenset[str]:
        """Return the blocks in which an unknown key stops the run."""
        ...


class Words(Protocol):
    """The fields of some dataclasses."""

    def keys(self) -> Iterable[str]:
        """Return every key."""
        ...

    def type_of(self, key: str) -> str | None:
        """Return the type of a key, or None."""
        ...

    def default(self, key: str) -> Any:
        """Return the value of a key that is not written."""
        ...

    def meaning(self, key: str) -> str | None:
        """Return the effect of a key on memory, or None."""
        ...


@runtime_checkable
class HasWords(Protocol):
    """A trainer whose keys are the fields of dataclasses."""

    def vocabulary(self, document: Document | None, stack: Stack) -> Words:
        """Return the keys that a file may have; without a file, all keys."""
        ...


def key_facts_of(trainer: Trainer, version: str) -> Mapping[str, KeyFact]:
    """Return the keys of a trainer in a known version; empty if it lists none."""
    if isinstance(trainer, ListsKeys):
        return trainer.key_facts(version)
    return _of_words(trainer.vocabulary(None, _stack(trainer, version))) if isinstance(trainer, HasWords) else {}


def closed_blocks_of(trainer: Trainer, version: str) -> frozenset[str]:
    """Return the blocks in which an unknown key stops the run."""
    return trainer.closed_blocks(version) if isinstance(trainer, ListsKeys) else frozenset()


def _of_words(words: Words) -> dict[str, KeyFact]:
    return {
        key: KeyFact(type=words.type_of(key) or "any", default=words.default(key), memory=words.meaning(key) or "")
        for key in words.keys()  # noqa: SIM118 (not a mapping)
    }


def _stack(trainer: Trainer, version: str) -> Stack:
    """Return a version with the package versions that it installs with."""
    origin = Origin(kind="assumed", why=f"what {trainer.package} {version} installs with")
    versions = {**trainer.releases()[version], trainer.package: version}
    return Stack(releases={name: Release(version=one, origin=origin) for name, one in versions.items()})
