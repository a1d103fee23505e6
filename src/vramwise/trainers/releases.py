"""The releases of a package: what each knows (keys, types, defaults, signatures), and from which on until when.

Two files in the folder `schema` beside a module, whose `__file__` is passed as `beside`; written by `make releases`:

    releases.json   {"1.16.0": {"released": "2026-10-15", "with": {"torch": "2.15.0"}}, …}, oldest first; `with`: what
                    it is installed with, where that differs from the release before
    history.json    {"sft": {"max_length": ["0.20.0", ["int?", 1024]]}, …}: each fact with the releases that change it

A fact is a list: a release, what holds from it on, the next release that changes it… null: gone from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any, cast

from vramwise.bundled import bundled_json
from vramwise.types import version_parts

# The module beside which the releases of transformers are, without loading it.
TRANSFORMERS = str(PurePath(__file__).parent / "arguments" / "vocabulary.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive releases in which a fact is the same. `gone`: the release after the last one, "" if there is none."""

    first: str
    last: str
    gone: str
    value: Any


@cache
def releases_of(beside: str) -> Mapping[str, Mapping[str, Any]]:
    """Return every known release, oldest first: when it was released, and what it installs with."""
    return cast(dict[str, dict[str, Any]], bundled_json("schema/releases.json", beside))


@cache
def known_versions(beside: str) -> tuple[str, ...]:
    """Return the known releases, oldest first."""
    return tuple(releases_of(beside))


@cache
def installs(beside: str) -> Mapping[str, dict[str, str]]:
    """Return each known release, oldest first, with the version of each package that it was installed with."""
    found: dict[str, dict[str, str]] = {}
    held: dict[str, str] = {}
    for version, release in releases_of(beside).items():
        held = held | release["with"]
        found[version] = {name: one for name, one in held.items() if one}
    return found


def transformers_versions() -> tuple[str, ...]:
    """Return the known releases of transformers, oldest first, without loading what reads their facts."""
    return known_versions(TRANSFORMERS)


def nearest(version: str, known: tuple[str, ...]) -> str:
    """Return the newest known version that is not newer, else the oldest."""
    if version in known:
        return version
    wanted = version_parts(version)
    earlier = [one for one in known if version_parts(one) <= wanted]
    return earlier[-1] if earlier else known[0]


@cache
def versioned_facts(version: str, beside: str) -> Mapping[str, Any]:
    """Return the facts of a release. An unknown one is read as the newest before it, or as the oldest."""
    order = {one: place for place, one in enumerate(known_versions(beside))}
    return cast(dict[str, Any], _held(_history(beside), order[nearest(version, tuple(order))], order))


def spans(beside: str, *path: str) -> tuple[Span, ...]:
    """Return in which releases there is a fact, oldest first: `spans(beside, "sft", "max_length")`."""
    node = _history(beside)
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    known = known_versions(beside)
    if not isinstance(node, list):
        return ()
    changes = list(_changes(node))
    ends = [*(since for since, _ in changes[1:]), ""]
    return tuple(
        Span(first=since, last=known[(known.index(end) if end else len(known)) - 1], gone=end, value=value)
        for (since, value), end in zip(changes, ends, strict=True)
        if value is not None
    )


@cache
def _history(beside: str) -> Any:
    return bundled_json("schema/history.json", beside)


def _held(node: Any, at: int, order: Mapping[str, int]) -> Any:
    """Return what a part of the history is in one release; None if that has nothing of it."""
    if isinstance(node, list):
        value = None
        for since, changed in _changes(node):
            if order[since] > at:
                break
            value = changed
        return value
    found = {name: _held(inner, at, order) for name, inner in node.items()}
    return {name: value for name, value in found.items() if value is not None} or None


def _changes(fact: list[Any]) -> Iterator[tuple[str, Any]]:
    return zip(fact[::2], fact[1::2], strict=True)
