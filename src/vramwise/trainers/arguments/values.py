"""A Document as the dataclasses see it, and the values of their fields while a RunSpec is being built."""

from __future__ import annotations

from math import isfinite
from typing import Any

from vramwise.limits import parse_json
from vramwise.trainers.arguments.vocabulary import RENAMED, UNUSABLE, Vocabulary
from vramwise.trainers.fields import Fields
from vramwise.types import Asked, Config, Document, Origin

# Blocks whose keys may have the block's name as a prefix: `fsdp_config.fsdp_offload_params`.
_PREFIXED = {"fsdp_config": "fsdp_"}
# No mapping written as a line of text is longer.
_LONGEST_JSON = 100_000


def arguments_config(document: Document, words: Vocabulary) -> Config:
    """Return the file's values as the parser converts them; unusable ones are left out, and a rule reports them."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, value in document.values.items():
        held = words.held(key, value) if isinstance(key, str) else UNUSABLE
        if held is UNUSABLE:
            continue
        value = _mapping(held, words.type_of(key))
        if isinstance(value, dict) and key in _PREFIXED:
            value = _without_prefix(key, value, sources)
        now = RENAMED.get(key, key) if key in words else key
        if now != key and now not in document.values:
            sources[now] = key
            key = now
        values[key] = value
    return Asked(document, values, sources)


def _mapping(value: Any, written: str | None) -> Any:
    """Return a mapping that is written as JSON text; anything else unchanged."""
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
    """The values of the dataclasses: what is written, including null, else defaults. Records origins in `fields`.

    `defaults` replace the dataclass's own defaults if a script sets others.
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
        """Return whether the file sets the key to a usable value, including null."""
        return key in self.fields.config and key in self.fields.config.values

    def value(self, key: str) -> Any:
        """Return the value of the dataclass's field."""
        if self.written(key):
            return self.fields.config.get(key)
        return self.default(key)

    def default(self, key: str) -> Any:
        """Return the value of a key that is not written."""
        return self._defaults[key] if key in self._defaults else self.words.default(key)

    def text(self, key: str) -> str | None:
        """Return the value if it is a text, else None."""
        value = self.value(key)
        return value if isinstance(value, str) else None

    def count(self, key: str) -> int:
        """Return the value as a count: values below 1 count as 1, so that calculations go on."""
        value = self.value(key)
        if isinstance(value, float):
            value = int(value) if isfinite(value) else 1
        return max(1, value) if isinstance(value, int) else 1

    def take(self, field: str, key: str, *, why: str | None = None) -> Any:
        """Set a field of the run to the key's value."""
        return self.put(field, key, self.value(key), why=why)

    def take_count(self, field: str, key: str, *, why: str | None = None) -> int:
        """Set a field of the run to the key's value as a count."""
        return int(self.put(field, key, self.count(key), why=why))

    def put(self, field: str, key: str, value: Any, *, why: str | None = None) -> Any:
        """Set a field whose value this key decides, by its default if it is not written."""
        fields = self.fields
        fields.keys[field] = key
        if self.written(key):
            return fields.put(field, value, fields.written(key))
        reason = why or f"unset: {key} is {_shown(self.default(key))}"
        return fields.put(field, value, Origin(kind="default", why=reason))

    def assume(self, field: str, value: Any, why: str) -> Any:
        """Set a value that the file leaves open."""
        return self.fields.assume(field, value, why)

    def derive(self, field: str, value: Any, why: str, *, key: str | None = None) -> Any:
        """Set a value that follows from others; `key` is the key to report, with its place."""
        if key is not None:
            self.fields.keys[field] = key
        return self.fields.derive(field, value, why, key=key)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
