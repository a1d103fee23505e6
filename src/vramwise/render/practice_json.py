"""Search results and keys as plain values, for `--format json` and for agents."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vramwise.keys.lookup import KeyPage
from vramwise.practice.search import Found


def found_json(found: Found) -> dict[str, Any]:
    """Return one search result as plain values."""
    entry = found.entry
    return {
        "kind": entry.kind,
        "name": entry.name,
        "title": entry.title,
        "excerpt": found.excerpt,
        "see": entry.see,
        "score": round(found.score, 2),
    }


def key_json(page: KeyPage) -> dict[str, Any]:
    """Return all that is known about a key; unknown values are null."""
    return {
        "trainer": page.trainer,
        "key": page.key,
        "memory": page.memory or None,
        "field": page.field or None,
        "names": list(page.names),
        "needs": page.needs or None,
        "versions": [{**asdict(one), "versions": list(one.versions)} for one in page.versions],
        "rules": list(page.rules),
    }
