"""Put keys that came with a release into trainers/unread.json: as not counted, until a person has read what they do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.version import Version

from histories import Known
from known_packages import Package

# Sections of the facts whose names are no keys of a file.
_NO_KEYS = frozenset({"constructors", "commands", "launch", "memory", "dynamic", "sections", "replaced"})
_OF_AXOLOTL = ("keys", "blocks", "plugins")


def sort_in(package: Package, known: Known, table: Path) -> list[str]:
    """Add the keys that came with the newest release and stand in no part of the table; return them."""
    newest = max(known.facts, key=Version)
    before = {key for version, facts in known.facts.items() if version != newest for key in _keys(facts)}
    parts = json.loads(table.read_text(encoding="utf-8"))
    seen = [parts[name] for name in parts["parts"].get(package.folder, [package.folder])]
    new = [key for key in dict.fromkeys(_keys(known.facts[newest])) if key not in before and not _sorted(key, seen)]
    entry = {"effect": "said", "why": f"new in {package.title} {newest}: what it does is not known yet"}
    start = f'  "{package.folder}": {{\n    "named": {{\n'
    text = table.read_text(encoding="utf-8")
    assert start in text, package.folder
    lines = "".join(f"      {json.dumps(key)}: {json.dumps(entry)},\n" for key in new)
    table.write_text(text.replace(start, start + lines), encoding="utf-8")
    return new


def _keys(facts: dict[str, Any]) -> Iterator[str]:
    sections = [name for name in (_OF_AXOLOTL if "plugins" in facts else facts) if name not in _NO_KEYS]
    for section in sections:
        held = facts.get(section)
        for name, fact in held.items() if isinstance(held, dict) else ():
            if isinstance(fact, dict):
                yield from (f"{name}.{key}" if section == "blocks" else key for key in fact)
            elif section != "plugins":
                yield name


def _sorted(key: str, parts: list[dict[str, Any]]) -> bool:
    patterns = [one for part in parts for keys in part["harmless"].values() for one in keys]
    return any(key in part["named"] for part in parts) or any(fnmatchcase(key, one) for one in patterns)
