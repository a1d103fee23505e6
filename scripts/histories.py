"""Write and read schema/history.json and schema/releases.json: what every known release of a package has.

The format is described in `vramwise.trainers.releases`. `Known` reads what is there, so that one more wheel is enough
to write both files anew: no release that is known is ever dropped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

SRC = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SRC))
TRAINERS = SRC / "vramwise/trainers"

Facts = dict[str, Any]


class Known:
    """The releases of a package with their facts: those in the folder, and what is added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.releases: dict[str, dict[str, Any]] = {}
        self.facts: dict[str, Facts] = {}
        if (folder / "releases.json").is_file():
            held: dict[str, str | None] = {}
            for version, release in json.loads((folder / "releases.json").read_text(encoding="utf-8")).items():
                held = held | release["with"]
                self.releases[version] = {**release, "with": {name: one for name, one in held.items() if one}}
            history = json.loads((folder / "history.json").read_text(encoding="utf-8"))
            order = {version: place for place, version in enumerate(self.releases)}
            for version, at in order.items():
                self.facts[version] = facts_at(history, at, order) or {}

    def add(self, version: str, release: Mapping[str, Any], facts: Facts) -> None:
        """Take one more release, or replace what is known of one."""
        self.releases[version], self.facts[version] = dict(release), facts

    def names(self) -> set[str]:
        """Every name of a fact, of any release."""
        return {
            name for facts in self.facts.values() for held in facts.values() if isinstance(held, dict) for name in held
        }

    def files(self, constant: Mapping[str, Any]) -> dict[Path, str]:
        """The text of both files. `constant`: facts that are written once, for every release."""
        for facts in self.facts.values():
            facts.update(constant)
        versions = sorted(self.releases, key=Version)
        pairs = zip([None, *versions], versions, strict=False)
        releases = {version: self._release(version, before) for before, version in pairs}
        history = history_of({version: self.facts[version] for version in versions})
        return {
            self.folder / "releases.json": unfolded(releases, 0) + "\n",
            self.folder / "history.json": unfolded(history, 9) + "\n",
        }

    def _release(self, version: str, before: str | None) -> dict[str, Any]:
        """What is written about a release: of the packages that it was installed with, those that changed."""
        now = self.releases[version]["with"]
        then = self.releases[before]["with"] if before else {}
        changed = {name: now.get(name) for name in {**then, **now} if now.get(name) != then.get(name)}
        return {**self.releases[version], "with": changed}

    def write(self, constant: Mapping[str, Any]) -> None:
        """Write both files."""
        for path, text in self.files(constant).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def facts_at(node: Any, at: int, order: Mapping[str, int]) -> Any:
    """What a part of a history is in one release; None if that has nothing of it."""
    if isinstance(node, list):
        held = [value for since, value in zip(node[::2], node[1::2], strict=True) if order[since] <= at]
        return held[-1] if held else None
    found = {name: facts_at(inner, at, order) for name, inner in node.items()}
    return {name: value for name, value in found.items() if value is not None} or None


def history_of(facts: Mapping[str, Any]) -> Any:
    """The history of facts by release, oldest first: a mapping with names, or a list of releases and values."""
    held = [one for one in facts.values() if one is not None]
    if all(isinstance(one, dict) and one for one in held):
        return {name: history_of({at: (one or {}).get(name) for at, one in facts.items()}) for name in _names(held)}
    fact: list[Any] = []
    for version, value in facts.items():
        if json.dumps(fact[-1] if fact else None) != json.dumps(value):  # in Python 1 is True
            fact += [version, value]
    return fact


def _names(held: Iterable[Facts]) -> list[str]:
    """Every name, those of the newest release first and in its order."""
    return list(dict.fromkeys(name for one in reversed(list(held)) for name in one))


def unfolded(node: Any, depth: int, indent: str = "") -> str:
    """JSON with one fact a line."""
    if depth < 0 or not isinstance(node, dict) or not node:
        return json.dumps(node, ensure_ascii=False)
    inner = indent + " "
    rows = [f"{inner}{json.dumps(name)}: {unfolded(held, depth - 1, inner)}" for name, held in node.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
