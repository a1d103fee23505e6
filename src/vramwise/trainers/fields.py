"""Collects resolved values, each with its origin, while a RunSpec is being built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.allocator.variables import settings_in_force
from vramwise.types import PLACES, Config, Origin, RunSpec, Target, in_sections, neutral


class Fields:
    """Collects the fields of a RunSpec, each with the origin of its value."""

    def __init__(self, config: Config, trainer: str) -> None:
        self.config = config
        self._default = f"{trainer}'s default"
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.keys: dict[str, str] = {}

    def take(self, name: str, default: Any, *, key: str | None = None, why: str | None = None) -> Any:
        """Take the value that the file sets under `key` (default: the field's name), else the trainer's default."""
        key = key or name
        self.keys[name] = key
        value = self.config.get(key)
        if value is None:  # absent, or written but empty: then it still has a place
            place = self.config.place(key)
            origin = Origin(kind="default", why=why or self._default, key=key if place else None, place=place)
            return self.put(name, default, origin)
        return self.put(name, value, self.written(key))

    def at_least_one(self, name: str, default: int, *, key: str | None = None, why: str | None = None) -> int:
        """Take a count. Values below 1 count as 1, so that calculations go on; the rule `not-positive` reports them."""
        value = max(1, self.take(name, default, key=key, why=why))
        self.values[name] = value
        return int(value)

    def derive(self, name: str, value: Any, why: str, *, key: str | None = None) -> Any:
        """Set a value that follows from others; `key` names the written key that decided it, if any."""
        place = self.config.place(key) if key else None
        self.keys.setdefault(name, key or name)
        return self.put(name, value, Origin(kind="derived", why=why, key=key if place else None, place=place))

    def assume(self, name: str, value: Any, why: str) -> Any:
        """Set a value that the file and the target leave open."""
        return self.put(name, value, Origin(kind="assumed", why=why))

    def neutral(self, *names: str, why: str = "") -> None:
        """Set settings that this trainer does not use to the neutral values of their sections."""
        for name in names:
            value, reason = neutral(name)
            self.derive(name, value, why or reason)

    def neutral_section(self, *sections: str) -> None:
        """Set every setting of these sections that is not filled yet to its neutral value."""
        self.neutral(
            *(name for name, (section, _) in PLACES.items() if section in sections and name not in self.values)
        )

    def run(self, target: Target, *, trainer: str, title: str, added: Mapping[str, str]) -> RunSpec:
        """Return the run; raises TypeError if a setting was not filled. `added`: variables that the trainer sets."""
        return RunSpec(
            trainer=trainer,
            trainer_title=title,
            config=self.config,
            target=target,
            origins=self.origins,
            keys=self.keys,
            model_type=None,
            duplicate_keys=self.config.document.duplicates,
            added_variables=dict(added),
            **in_sections(self.values),
        )

    def written(self, key: str) -> Origin:
        """Return the origin of a value that the file sets."""
        return Origin(kind="file", why="set in the file", key=key, place=self.config.place(key))

    def put(self, name: str, value: Any, origin: Origin) -> Any:
        """Record a value with its origin and return it."""
        self.keys.setdefault(name, origin.key or name)
        self.values[name] = value
        self.origins[name] = origin
        return value


def resolved(
    fields: Fields,
    target: Target,
    *,
    trainer: str,
    title: str,
    added: Mapping[str, str],
    whose: str,
    block: str | None = None,
) -> RunSpec:
    """Return the run. `added`: allocator variables that the trainer sets itself; `whose` describes who sets them.

    `block`: the key of the file under which they are written; then they override the user's environment.
    """
    if block is not None:
        own = {name: value for name, value in target.alloc_env.items() if name not in added}
        target = replace(target, alloc_env=own)
    settings, origin = settings_in_force(target, added, whose)
    if block is not None and origin.kind == "derived":
        name = next((name for name, value in added.items() if value == settings), block)
        key = f"{block}.{name}"
        origin = Origin(kind="file", why=f"set in the file's {block}", key=key, place=fields.config.place(key))
    fields.put("allocator", settings, origin)
    return fields.run(target, trainer=trainer, title=title, added=added)
