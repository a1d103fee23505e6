"""Who a trainer is, and what its files are recognised by: loaded for every trainer that a file might belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A trainer's names and releases, and how its files and logs are recognised: `IDENTITY` of its `recognise.py`."""

    name: str  # on the command line and in JSON
    title: str  # for display
    package: str  # the package whose version decides what its keys mean
    # Returns the known versions, oldest first, each with the package versions that it installs with.
    releases: Callable[[], Mapping[str, Mapping[str, str]]]
    # Returns whether a file with these values is one of its training configs.
    recognises: Callable[[Mapping[Any, Any]], bool]
    # Returns whether an unreadable text with these top-level keys may be meant as one of its configs.
    might_be: Callable[[frozenset[str]], bool]
    # Files of its tools that are not training configs, the most specific first.
    other_files: tuple[Sign, ...] = ()
    # Its further names in logs, and a setting that logs print with this name for no other trainer.
    other_names: tuple[str, ...] = ()
    own_setting: str = ""
