"""What every trainer provides: what its keys mean, how a change becomes edits, its rules, and new configs.

Every difference between two trainers, or between two versions of one, ends up in the RunSpec that `resolve` returns:
code after that does not ask which trainer it was. This room is pure: the caller reads the files beside the config and
passes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vramwise.rules.base import Rule
from vramwise.trainers.signs import Identity
from vramwise.types import Change, Document, Edit, RunSpec, Schedule, Stack, Target, version_parts

if TYPE_CHECKING:
    from vramwise.trainers.starting import ScriptWriter, Starter
    from vramwise.trainers.vocabulary import KeyFact, Words
    from vramwise.trainers.wishes import Wishes

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


def _no_blocks(version: str) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trainer:
    """What a trainer does, as functions: `TRAINER` of its `trainer.py`. Members with a default are optional."""

    identity: Identity
    # Returns the names of files that affect memory too, as the config writes them.
    side_files: Callable[[Document], tuple[str, ...]]
    # Returns the datasets that the config names, in order.
    datasets: Callable[[Document], tuple[DatasetBlock, ...]]
    # Returns how long the config trains; this affects neither memory nor the speed of a step.
    schedule: Callable[[Document], Schedule]
    # Returns what this config really does on this target, with these versions.
    resolve: Callable[[Document, Target, SideFiles], RunSpec]
    # Returns a change as edits of the file; None if the trainer has no key for it, or the file conflicts with it.
    spell: Callable[[RunSpec, Change], Spelling | None]
    # The lines to set for a change if there is no config.
    words: Mapping[str, tuple[str, ...]]
    # Returns the keys whose value has a wrong type, each with a sentence.
    type_errors: Callable[[Document, Stack], Sequence[tuple[str, str]]]
    # Returns why the first part of a key is unknown ("did you mean …"); None if it is known.
    key_unknown: Callable[[str, Stack], str | None]
    # Returns the rules about its own keys.
    rules: Callable[[], Sequence[Rule]]
    # Returns the trainer for one kind of training; raises VramwiseError for an unknown kind.
    of_kind: Callable[[str], Trainer] | None = None
    # Its keys: as fields of dataclasses (without a document: of every file), or each with facts in a known version.
    vocabulary: Callable[[Document | None, Stack], Words] | None = None
    key_facts: Callable[[str], Mapping[str, KeyFact]] | None = None
    # Returns the blocks in which an unknown key stops the run, in a known version.
    closed_blocks: Callable[[str], frozenset[str]] = _no_blocks
    # Returns the values of a config for these wishes.
    compose: Callable[[Wishes], Mapping[str, Any]] | None = None
    # Its scripts drop unknown keys if a launcher other than its command starts them, so that these date no file.
    drops_unknown: bool = False
    # Return the modules that write new configs and scripts.
    starter: Callable[[], Starter] | None = None
    script_writer: Callable[[], ScriptWriter] | None = None

    @property
    def name(self) -> str:
        """Its name on the command line and in JSON."""
        return self.identity.name

    @property
    def title(self) -> str:
        """Its name for display."""
        return self.identity.title

    @property
    def package(self) -> str:
        """The package whose version decides what its keys mean."""
        return self.identity.package

    def dated(self, document: Document, stack: Stack) -> tuple[tuple[str, str, str], ...]:
        """Return the newest releases that take a file, as package, version and why, where the assumed ones refuse it.

        Empty if these take it, or where a trainer's releases refuse nothing.
        """
        return ()

    def oldest_for(self, document: Document, stack: Stack) -> Stack | None:
        """Return the stack with the oldest known release that takes as much of a file as the stack's own, or None.

        What a file's keys say of its age is not known here: older than today's transformers, it is taken for no guess.
        """
        today = stack.releases.get("transformers")
        for version, installs in self.releases().items():
            if today is None or version_parts(installs.get("transformers", ""))[:1] == today.parts[:1]:
                return stack.at(self.package, version, installs)
        return None

    def taken_by(self, document: Document, stack: Stack, key: str) -> str:
        """Return the newest known release that takes the value of a key which this stack's refuses; "" if none does."""
        for version, installs in reversed(list(self.releases().items())):
            if key not in dict(self.type_errors(document, stack.at(self.package, version, installs))):
                return f"{self.package} {version}"
        return ""

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions, oldest first, each with the package versions that it installs with."""
        return self.identity.releases()
