"""The keys of some dataclasses: type, default, and what each means for memory.

Made by scripts/generate_arguments.py and its kin from the dataclasses' source: the newest version in full, each older
one as what differs from the next newer, a JSON merge patch (RFC 7386: null means absent).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from vramwise.facts.bundled import bundled_json, patched
from vramwise.trainers.names import suggest
from vramwise.trainers.value_types import accepts, decoded, describe, describe_value, parse_type
from vramwise.types import Stack

_TRUE = frozenset({"yes", "true", "t", "y", "1"})
_FALSE = frozenset({"no", "false", "f", "n", "0"})
_NOTHING = frozenset({"none", "null"})


class Vocabulary:
    """Keys with their types and defaults. `facts`: {"keys": {key: [type, default]}, "memory": {key: sentence}}."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._keys: Mapping[str, list[Any]] = facts["keys"]
        self._memory: Mapping[str, str] = facts.get("memory", {})

    def __or__(self, other: Vocabulary) -> Vocabulary:
        """Both; the other's types and defaults win, as a subclass's do."""
        return Vocabulary({"keys": {**self._keys, **other._keys}, "memory": {**self._memory, **other._memory}})

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> frozenset[str]:
        """Every key."""
        return frozenset(self._keys)

    def type_of(self, key: str) -> str | None:
        """The type of a key, in the grammar of `value_types`; None for one that is not here."""
        found = self._keys.get(key)
        return None if found is None else cast(str, found[0])

    def default(self, key: str) -> Any:
        """What a key holds where nothing is written."""
        found = self._keys.get(key, ())
        return found[1] if len(found) > 1 else None

    def meaning(self, key: str) -> str | None:
        """What a key means for memory; None where it has no say."""
        return self._memory.get(key)

    def check(self, key: str, value: Any) -> str | None:
        """None where the value will do, else a sentence: what the key takes, what was found.

        The parsers convert texts and check nothing else, so only what cannot work is refused: text takes any single
        value, a list one that stands alone, and an empty value of true or false counts as false.
        """
        written = self.type_of(key)
        if written is None or accepts(written, value) or _will_do(written, value):
            return None
        return f"{key} takes {describe(written)}, found {describe_value(value)}"

    def coerce(self, key: str, value: Any) -> Any:
        """The value as the dataclass holds it: texts become what the field's type says."""
        value = decoded(value)
        written = self.type_of(key)
        if written is None or not isinstance(value, str):
            return value
        alternatives, optional = parse_type(written)
        kinds = {one.kind for one in alternatives}
        if kinds & {"str", "one_of", "any", "list", "dict"}:
            return value
        if optional and value.lower() in _NOTHING:
            return None
        if "bool" in kinds:
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}.get(value.lower(), value)
        return _number(kinds, value)

    def type_errors(self, values: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
        """(key, sentence) for every value that its key does not take."""
        for key, value in values.items():
            if isinstance(key, str) and (sentence := self.check(key, value)):
                yield key, sentence


def _will_do(written: str, value: Any) -> bool:
    alternatives, optional = parse_type(written)
    kinds = {one.kind for one in alternatives}
    if value is None:
        return "bool" in kinds
    if optional and isinstance(value, str) and value.lower() in _NOTHING:
        return True
    single = not isinstance(value, dict | list | tuple | set)
    if kinds & {"str", "list"} and single and not (value is False and "one_of" in kinds):
        return True
    text = value if isinstance(value, str) else ""
    return "dict" in kinds and text.startswith("{")


def _number(kinds: set[str], text: str) -> str | float:
    try:
        return int(text) if "int" in kinds else float(text)
    except ValueError:
        return text


def unknown_key(key: str, words: Vocabulary, title: str) -> str | None:
    """Why a key, by its first part, is none of a trainer's; None where it is."""
    first = key.strip().partition(".")[0]
    if first in words:
        return None
    near = " or ".join(suggest(first, words.keys()))
    return f"{title} knows no key '{first}'" + (f": did you mean {near}?" if near else "")


@cache
def versioned_facts(version: str, beside: str) -> Mapping[str, Any]:
    """The facts of a version, from the JSON files in the folder `facts` beside a module (`__file__`).

    A version that is not there is read as the newest before it, or as the oldest.
    """
    versions = known_versions(beside)
    version = nearest(version, versions)
    written = cast(dict[str, Any], bundled_json(f"facts/{version}.json", beside))
    newer = versions[versions.index(version) + 1 :]
    return cast(dict[str, Any], patched(versioned_facts(newer[0], beside), written)) if newer else written


@cache
def known_versions(beside: str) -> tuple[str, ...]:
    """The versions whose facts are there, the oldest first."""
    return tuple(bundled_json("facts/versions.json", beside))


def nearest(version: str, known: tuple[str, ...]) -> str:
    """The newest known version that is not newer, else the oldest."""
    wanted = _parts(version)
    earlier = [one for one in known if _parts(one) <= wanted]
    return earlier[-1] if earlier else known[0]


def _parts(version: str) -> tuple[int, ...]:
    from vramwise.types import Origin, Release

    return Release(version=version, origin=Origin(kind="derived", why="")).parts


def training_arguments(stack: Stack) -> Vocabulary:
    """TrainingArguments as the stack's transformers has them; of the newest known where that is not said."""
    release = stack.releases.get("transformers")
    return _training_arguments(release.version if release else known_versions(__file__)[-1])


def argument_versions() -> tuple[str, ...]:
    """The versions of transformers whose TrainingArguments are known, the oldest first."""
    return known_versions(__file__)


@cache
def _training_arguments(version: str) -> Vocabulary:
    return Vocabulary(versioned_facts(version, __file__))
