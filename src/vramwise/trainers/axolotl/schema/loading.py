"""Axolotl's facts by version, as they lie in the JSON files beside this one.

The newest version is there in full; each older one holds what differs from the next newer, as a JSON merge patch
(RFC 7386: null means absent). Made by scripts/generate_axolotl_facts.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from vramwise.bundled import bundled_json, patched


@cache
def releases() -> dict[str, dict[str, Any]]:
    """Version → released, python, pins; oldest first."""
    newest_first = cast(dict[str, dict[str, Any]], bundled_json("releases.json", __file__))
    return dict(reversed(newest_first.items()))


@cache
def facts(version: str) -> dict[str, Any]:
    """Everything known about one version. To be read only: versions share what they have in common."""
    written = cast(dict[str, Any], bundled_json(f"{version}.json", __file__))
    versions = list(releases())
    newer = versions[versions.index(version) + 1 :]
    return cast(dict[str, Any], patched(facts(newer[0]), written)) if newer else written
