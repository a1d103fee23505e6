"""How files are recognised by their keys: words of one tool, and signs of files that no trainer trains with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


def words(text: str) -> frozenset[str]:
    """The words of a text, which may run over several lines."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A file of this `kind` has one of `any_of` and all of `all_of`; `what` is its kind for people."""

    kind: str
    what: str
    any_of: frozenset[str]
    all_of: frozenset[str] = frozenset()


@runtime_checkable
class HasOtherFiles(Protocol):
    """A trainer whose tools also read files that are not training configs."""

    def other_files(self) -> Sequence[Sign]:
        """Their signs, the most telling first."""
        ...
