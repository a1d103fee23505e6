"""What a trainer is: how its files are recognised, what its keys mean, and how a change is spelt in them.

Everything that differs between two trainers, or two versions of one, ends in the RunSpec that `resolve` makes: nobody
behind it asks which trainer it was. Pure: files beside the config are read by whoever opens it and handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vramwise.rules.base import Rule
from vramwise.types import Change, Document, Edit, RunSpec, Schedule, Stack, Target

# What `side_files` names, read: name as the config has it → its content, None where it could not be read.
SideFiles = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """A change in a trainer's own words: edits of its file, or a shell line where the file has no word for it."""

    edits: tuple[Edit, ...] = ()
    command: str = ""
    title: str = ""  # what is written, where the change's own title would say something else


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetBlock:
    """One dataset as a config names it: a path or a format, files, and the columns that hold its texts."""

    path: str
    files: tuple[str, ...] = ()
    kind: str | None = None
    columns: tuple[str, ...] = ()
    evaluation: bool = False


class Trainer(Protocol):
    """One room of `trainers/`."""

    @property
    def name(self) -> str:
        """The word for it on the command line and in JSON."""
        ...

    @property
    def package(self) -> str:
        """The package whose version decides what its keys mean."""
        ...

    @property
    def title(self) -> str:
        """Its name for people."""
        ...

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Whether a file with these values is one of its training configs."""
        ...

    def might_be(self, keys: frozenset[str]) -> bool:
        """Whether a text that cannot be read, with these top-level keys, may be meant as one of its configs."""
        ...

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Names of JSON files that decide memory too, as the config writes them."""
        ...

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """The datasets that the config names, in their order."""
        ...

    def schedule(self, document: Document) -> Schedule:
        """How long it trains: no memory depends on that, and no step's speed."""
        ...

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """What this config will really do on this target, with these versions."""
        ...

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """The change in this trainer's words; None where it has none, or where its file stands against it."""
        ...

    def words(self, change_id: str) -> tuple[str, ...]:
        """The lines to set for a change where no config is at hand."""
        ...

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """Keys whose value has a wrong type, each with a sentence."""
        ...

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """Why a key, by its first part, is none of this trainer's ("did you mean …"); None where it is."""
        ...

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Known versions, the oldest first, each with the versions of other packages that it installs with."""
        ...

    def rules(self) -> Sequence[Rule]:
        """The rules that speak of its own keys."""
        ...
