"""What is known about each key of a trainer, for editors and for looking up keys.

A trainer lists its keys with `key_facts`, or has a vocabulary of dataclass fields. Callers use `key_facts_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from vramwise.trainers.base import Trainer
from vramwise.types import Origin, Release, Stack


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


def key_facts_of(trainer: Trainer, version: str) -> Mapping[str, KeyFact]:
    """Return the keys of a trainer in a known version; empty if it lists none."""
    if trainer.key_facts is not None:
        return trainer.key_facts(version)
    words = None if trainer.vocabulary is None else trainer.vocabulary(None, _stack(trainer, version))
    return {} if words is None else _of_words(words)


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
