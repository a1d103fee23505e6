"""A Document as the dataclasses see it, and the values of their fields while a RunSpec is being built."""

from __future__ import annotations

from math import isfinite
from typing import Any

from vramwise.budget import parse_json
from vramwise.trainers.arguments.vocabulary import UNUSABLE, Vocabulary
from vramwise.trainers.fields import Fields
from vramwise.types import Config, Document, Origin

# Blocks whose keys may carry their own name in front: `fsdp_config.fsdp_offload_params`.
_PREFIXED = {"fsdp_config": "fsdp_"}
# No mapping that somebody writes in a line of text is longer.
_LONGEST_JSON = 100_000


def arguments_config(document: Document, words: Vocabulary) -> Config:
    """The file's values as the parser makes them; those that cannot be used are left out (a rule reports them)."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, value in document.values.items():
        held = words.held(key, value) if isinstance(key, str) else UNUSABLE
        if held is UNUSABLE:
            continue
        value = _mapping(held, words.type_of(key))
        if isinstance(value, dict) and key in _PREFIXED:
            value = _without_prefix(key, value, sources)
        values[key] = value
    return Config(document, values, sources)


def _mapping(value: Any, written: str | None) -> Any:
    """A mapping that is written as a text of JSON; anything else as it is."""
    if not isinstance(value, str) or "dict" not in (written or "") or not value.startswith("{"):
        return value
    try:
        return parse_json(value) if len(value) <= _LONGEST_JSON else value
    except ValueError:
        return value


def _without_prefix(block: str, values: dict[Any, Any], sources: dict[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        short = str(key).removeprefix(_PREFIXED[block])
        renamed[short] = value
        if short != key:
            sources[f"{block}.{short}"] = f"{block}.{key}"
    return renamed


class Arguments:
    """What the dataclasses hold: what is written, null included, else their defaults. Records origins in `fields`.

    `defaults` replace the dataclass's own where a script sets others.
    """

    def __init__(self, fields: Fields, words: Vocabulary, defaults: dict[str, Any] | None = None) -> None:
        self.fields = fields
        self.words = words
        self._defaults = defaults or {}

    @property
    def values(self) -> dict[str, Any]:
        """The fields so far."""
        return self.fields.values

    def written(self, key: str) -> bool:
        """Whether the file sets the key to a usable value, null included."""
        return key in self.fields.config and key in self.fields.config.values

    def value(self, key: str) -> Any:
        """What the dataclass's field holds."""
        if self.written(key):
            return self.fields.config.get(key)
        return self.default(key)

    def default(self, key: str) -> Any:
        """What it holds where nothing is written."""
        return self._defaults[key] if key in self._defaults else self.words.default(key)

    def text(self, key: str) -> str | None:
        """Its value where that is a text."""
        value = self.value(key)
        return value if isinstance(value, str) else None

    def count(self, key: str) -> int:
        """Its value as a number of things: nonsense below 1 counts as 1, so that arithmetic goes on."""
        value = self.value(key)
        if isinstance(value, float):
            value = int(value) if isfinite(value) else 1
        return max(1, value) if isinstance(value, int) else 1

    def take(self, field: str, key: str, *, why: str | None = None) -> Any:
        """The key's value as a field of the run."""
        return self.put(field, key, self.value(key), why=why)

    def take_count(self, field: str, key: str, *, why: str | None = None) -> int:
        """The key's value as a number of things."""
        return int(self.put(field, key, self.count(key), why=why))

    def put(self, field: str, key: str, value: Any, *, why: str | None = None) -> Any:
        """A value that this key decides; where it is not written, by its default."""
        fields = self.fields
        fields.keys[field] = key
        if self.written(key):
            return fields.put(field, value, fields.written(key))
        reason = why or f"unset: {key} is {_shown(self.default(key))}"
        return fields.put(field, value, Origin(kind="default", why=reason))

    def assume(self, field: str, value: Any, why: str) -> Any:
        """A value that the file leaves open."""
        return self.fields.assume(field, value, why)

    def derive(self, field: str, value: Any, why: str, *, key: str | None = None) -> Any:
        """A value that follows from others; `key` is the one to speak of, and where it stands."""
        if key is not None:
            self.fields.keys[field] = key
        return self.fields.derive(field, value, why, key=key)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
