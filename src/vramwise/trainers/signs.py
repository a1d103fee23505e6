"""Recognises files by their keys: words of one tool, and signs of files that are not training configs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


def words(text: str) -> frozenset[str]:
    """Return the words of a text, which may span several lines."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A file of this `kind` has one of `any_of` and all of `all_of`; `what` describes it for people."""

    kind: str
    what: str
    any_of: frozenset[str]
    all_of: frozenset[str] = frozenset()


@runtime_checkable
class HasOtherFiles(Protocol):
    """A trainer whose tools also read files that are not training configs."""

    def other_files(self) -> Sequence[Sign]:
        """Return their signs, the most specific first."""
        ...
