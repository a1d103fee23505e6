"""The protocol of a trainer: how its files are recognised, what its keys mean, and how a change becomes edits.

Every difference between two trainers, or between two versions of one, ends up in the RunSpec that `resolve` returns:
code after that does not ask which trainer it was. This room is pure: the caller reads the files beside the config and
passes them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vramwise.rules.base import Rule
from vramwise.types import Change, Document, Edit, RunSpec, Schedule, Stack, Target

# The files that `side_files` names: name as in the config → its content, or None if it could not be read.
SideFiles = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """A change as edits of a trainer's file, or as a shell line if the file has no key for it."""

    edits: tuple[Edit, ...] = ()
    command: str = ""
    title: str = ""  # what is written, if it differs from the change's own title


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetBlock:
    """One dataset of a config: a path or a format, its files, and the columns that hold its texts."""

    path: str
    files: tuple[str, ...] = ()
    kind: str | None = None
    columns: tuple[str, ...] = ()
    evaluation: bool = False


class Trainer(Protocol):
    """What every trainer implements."""

    @property
    def name(self) -> str:
        """Its name on the command line and in JSON."""
        ...

    @property
    def package(self) -> str:
        """The package whose version decides what its keys mean."""
        ...

    @property
    def title(self) -> str:
        """Its name for display."""
        ...

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Return whether a file with these values is one of its training configs."""
        ...

    def might_be(self, keys: frozenset[str]) -> bool:
        """Return whether an unreadable text with these top-level keys may be meant as one of its configs."""
        ...

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Return the names of files that affect memory too, as the config writes them."""
        ...

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """Return the datasets that the config names, in order."""
        ...

    def schedule(self, document: Document) -> Schedule:
        """Return how long the config trains; this affects neither memory nor the speed of a step."""
        ...

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return what this config really does on this target, with these versions."""
        ...

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change as edits of this trainer's file.

        None if the trainer has no key for it, or the file conflicts with it.
        """
        ...

    def words(self, change_id: str) -> tuple[str, ...]:
        """Return the lines to set for a change if there is no config."""
        ...

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """Return the keys whose value has a wrong type, each with a sentence."""
        ...

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """Return why the first part of a key is unknown to this trainer ("did you mean …"); None if it is known."""
        ...

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions, oldest first, each with the package versions that it installs with."""
        ...

    def rules(self) -> Sequence[Rule]:
        """Return the rules about its own keys."""
        ...
