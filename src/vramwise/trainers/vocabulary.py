"""What is known about a trainer's keys, one by one: for editors and for those who look a key up.

A trainer that lists its keys has a method `vocabulary`; whoever asks about keys asks `vocabulary_of` for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from vramwise.trainers.base import Trainer


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
    brings_keys: bool = False  # a name that is not among `names` may bring keys of its own


@runtime_checkable
class HasVocabulary(Protocol):
    """A trainer that lists its keys."""

    def vocabulary(self, version: str) -> Mapping[str, KeyFact]:
        """Every key of a known version by its dotted name; `datasets[].path` is a key of a list's items."""
        ...

    def closed_blocks(self, version: str) -> frozenset[str]:
        """Blocks in which an unknown key stops the run."""
        ...


def vocabulary_of(trainer: Trainer, version: str) -> Mapping[str, KeyFact]:
    """The keys of a trainer; none where it lists none."""
    return trainer.vocabulary(version) if isinstance(trainer, HasVocabulary) else {}
