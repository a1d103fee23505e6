"""The keys of some dataclasses: type, default, and what each means for memory.

Made by scripts/generate_arguments.py and its kin from the dataclasses' source: the newest version in full, each older
one as what differs from the next newer, a JSON merge patch (RFC 7386: null means absent).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from vramwise.bundled import bundled_json, patched
from vramwise.trainers.arguments.parsing import NO, TRUE, class_of, converted, of_type, will_do
from vramwise.trainers.names import suggest
from vramwise.trainers.value_types import accepts, decoded, describe, describe_value, parse_type
from vramwise.types import Origin, Release, Stack
from vramwise.units import whole_number

# What a value is where its key cannot use it: then the default counts, and a rule says so.
UNUSABLE = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Misread:
    """A value of another type that no parser stops at: what becomes of it, and whether that spoils the run."""

    key: str
    sentence: str
    grave: bool


class Vocabulary:
    """Keys with their types and defaults. `facts`: {"keys": {key: [type, default]}, "memory": {key: sentence}}."""

    def __init__(self, facts: Mapping[str, Any], *, converts: bool = True) -> None:
        self._keys: Mapping[str, list[Any]] = facts["keys"]
        self._memory: Mapping[str, str] = facts.get("memory", {})
        # Classes of values that a field's own code stops at, where they are not of its type.
        self._strict: Mapping[str, list[str]] = facts.get("strict", {})
        self._converts = converts  # texts become what the field's type says
        self._names = frozenset(self._keys)

    def __or__(self, other: Vocabulary) -> Vocabulary:
        """Both; the other's types and defaults win, as a subclass's do."""
        return Vocabulary(
            {
                "keys": {**self._keys, **other._keys},
                "memory": {**self._memory, **other._memory},
                "strict": {**self._strict, **other._strict},
            }
        )

    def unconverted(self, strict: Mapping[str, list[str]] | None = None) -> Vocabulary:
        """The same for a parser that converts nothing: whole numbers and switches in quotes stay texts.

        `strict`: what its own run of all checks stops at, where that is known.
        """
        facts = {"keys": self._keys, "memory": self._memory, "strict": self._strict if strict is None else strict}
        return Vocabulary(facts, converts=False)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> frozenset[str]:
        """Every key."""
        return self._names

    def type_of(self, key: str) -> str | None:
        """The type of a key, in the grammar of `value_types`; None for one that is not here."""
        found = self._keys.get(key)
        return None if found is None else cast(str, found[0])

    def default(self, key: str) -> Any:
        """What a key holds where nothing is written."""
        found = self._keys.get(key, ())
        return found[1] if len(found) > 1 else None

    def meaning(self, key: str) -> str | None:
        """What a key means for memory; None where it has no effect."""
        return self._memory.get(key)

    def check(self, key: str, value: Any) -> str | None:
        """None where the parser takes the value, else a sentence: what the key takes, what was found."""
        written = self.type_of(key)
        if written is None or not self._refuses(key, written, decoded(value)):
            return None
        return f"{key} takes {describe(written)}, found {describe_value(value)}"

    def _refuses(self, key: str, written: str, value: Any) -> bool:
        if isinstance(value, str) and self._converts:
            try:
                value = converted(written, value)
            except ValueError:
                return True
        return class_of(value) in self._strict.get(key, ()) and not of_type(written, value)

    def misread(self, key: str, value: Any) -> Misread | None:
        """What becomes of a value that the parser takes although it is of another type; None where it will do."""
        written = self.type_of(key)
        if written is None or self.check(key, value) is not None:
            return None
        value = decoded(value)
        if self._converts and isinstance(value, str):
            value = converted(written, value)
        if "bool" in kinds_of(written) and not accepts_held(written, value):
            return _as_switch(key, value)
        if self._quoted_number(written, value):
            why = f"{key} expects {describe(written)}, found {describe_value(value)}: remove the quotes"
        elif accepts(written, value) or will_do(written, value):
            return None
        else:
            why = f"{key} takes {describe(written)}, found {describe_value(value)}"
        return Misread(key=key, sentence=why, grave=key in self._memory)

    def _quoted_number(self, written: str, value: Any) -> bool:
        whole = kinds_of(written) == {"int"} and isinstance(value, str)
        return whole and not self._converts and whole_number(value.strip().removeprefix("-")) is not None

    def held(self, key: str, value: Any) -> Any:
        """The value as the dataclass holds it; UNUSABLE for one that is refused or cannot be worked with."""
        if self.check(key, value) is not None:
            return UNUSABLE
        value, written = decoded(value), self.type_of(key)
        if written is None:
            return value
        if self._converts and isinstance(value, str):
            value = converted(written, value)
        found = self.misread(key, value)
        if found is None:
            return value
        return bool(value) if "bool" in kinds_of(written) else UNUSABLE

    def misreadings(self, values: Mapping[Any, Any]) -> Iterator[Misread]:
        """Every value of another type that the parser takes."""
        found = (self.misread(key, value) for key, value in values.items() if isinstance(key, str))
        return (one for one in found if one is not None)

    def type_errors(self, values: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
        """(key, sentence) for every value that the parser refuses."""
        for key, value in values.items():
            if isinstance(key, str) and (sentence := self.check(key, value)):
                yield key, sentence


def kinds_of(written: str) -> set[str]:
    """The kinds of values that a type names."""
    return {one.kind for one in parse_type(written)[0]}


def accepts_held(written: str, value: Any) -> bool:
    """Whether a value is of a type as it stands: texts are no switches."""
    if value is None or kinds_of(written) != {"bool"}:
        return value is None or accepts(written, value) or will_do(written, value)
    return not isinstance(value, str) and accepts(written, value)


def _as_switch(key: str, value: Any) -> Misread | None:
    """Switches go by what Python takes for true."""
    no = isinstance(value, str) and value.lower() in NO
    if isinstance(value, str) and value.lower() in TRUE:
        return None
    counts = f"which counts as {str(bool(value)).lower()}"
    return Misread(key=key, sentence=f"{key} expects true or false, found {describe_value(value)}, {counts}", grave=no)


def unknown_key(key: str, words: Vocabulary, title: str) -> str | None:
    """Why a key, by its first part, is none of a trainer's; None where it is."""
    first = key.strip().partition(".")[0]
    if first in words:
        return None
    near = " or ".join(suggest(first, words.keys()))
    return f"{title} has no key '{first}'" + (f": did you mean {near}?" if near else "")


@cache
def versioned_facts(version: str, beside: str) -> Mapping[str, Any]:
    """The facts of a version, from the JSON files in the folder `facts` beside a module (`__file__`).

    A version that is not there is read as the newest before it, or as the oldest.
    """
    versions = known_versions(beside)
    version = nearest(version, versions)
    written = cast(dict[str, Any], bundled_json(f"schema/{version}.json", beside))
    newer = versions[versions.index(version) + 1 :]
    return cast(dict[str, Any], patched(versioned_facts(newer[0], beside), written)) if newer else written


@cache
def strict_facts(beside: str) -> Mapping[str, Any]:
    """{"strict": {key: classes of values that it stops at}}, from the folder `facts` beside a module (`__file__`)."""
    return {"strict": bundled_json("schema/strict.json", beside)["strict"]}


@cache
def known_versions(beside: str) -> tuple[str, ...]:
    """The versions whose facts are there, the oldest first."""
    return tuple(bundled_json("schema/versions.json", beside))


def nearest(version: str, known: tuple[str, ...]) -> str:
    """The newest known version that is not newer, else the oldest."""
    wanted = _parts(version)
    earlier = [one for one in known if _parts(one) <= wanted]
    return earlier[-1] if earlier else known[0]


def _parts(version: str) -> tuple[int, ...]:
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
    return Vocabulary({**versioned_facts(version, __file__), **strict_facts(__file__)})
