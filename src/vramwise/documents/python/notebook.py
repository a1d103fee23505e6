"""The code cells of a notebook: their text, the position of each line in the JSON, and writing lines back.

Only the strings of a cell's `source` are replaced: outputs, metadata, ids and layout stay byte for byte.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from vramwise.budget import parse_json
from vramwise.errors import ConfigError

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_DECODER = json.JSONDecoder()
_START = re.compile(r"^\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One code cell. `number`: among all cells, from 1. `text`: its source and the mark after it."""

    number: int
    first_line: int  # the first line of its source in the joined text, from 1
    source: str
    text: str


def is_notebook(text: str) -> bool:
    """Return whether a text is the JSON of a notebook."""
    return _START.match(text) is not None and '"cells"' in text and _loaded(text) is not None


def cells_of(text: str) -> tuple[Cell, ...]:
    """Return the code cells in order; raises ConfigError for a cell without source text."""
    found: list[Cell] = []
    line = 1
    for number, cell in enumerate((_loaded(text) or {})["cells"], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = _source(cell, number)
        shown = source if source.endswith("\n") or not source else f"{source}\n"
        shown += "# %%\n"
        found.append(Cell(number=number, first_line=line, source=source, text=shown))
        line += shown.count("\n")
    return tuple(found)


def _loaded(text: str) -> dict[str, Any] | None:
    try:
        found = parse_json(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("cells"), list) else None


def _source(cell: dict[str, Any], number: int) -> str:
    written = cell.get("source", "")
    lines = [written] if isinstance(written, str) else written
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"cell {number} of this notebook has no source text: open it in Jupyter and save it again")
    return "".join(lines).replace("\r\n", "\n").replace("\r", "\n")


def with_sources(raw: str, cells: tuple[Cell, ...], sources: dict[int, str]) -> str:
    """Return the notebook's JSON with new sources for some cells, by number; everything else unchanged."""
    edits: list[tuple[int, int, str]] = []
    places = _source_places(raw)
    for cell in cells:
        if cell.number not in sources or sources[cell.number] == cell.source:
            continue
        start, end = places[cell.number]
        edits.append((start, end, _written(raw[start:end], sources[cell.number])))
    for start, end, text in sorted(edits, reverse=True):
        raw = raw[:start] + text + raw[end:]
    return raw


def line_in_file(raw: str, number: int, line: int) -> int:
    """Return the line of the notebook's JSON that holds a line of a cell, both from 1."""
    start, end = _source_places(raw)[number]
    strings = [found.start() for found in _STRING.finditer(raw, start, end)] or [start]
    return raw.count("\n", 0, strings[min(line, len(strings)) - 1]) + 1


def _written(before: str, source: str) -> str:
    """Return a source as JSON in its original layout (one string, or a list of lines); unchanged lines stay."""
    ascii_only = before.isascii()
    if before.startswith('"'):
        return json.dumps(source, ensure_ascii=ascii_only)
    kept = {parse_json(found[0]): found[0] for found in _STRING.finditer(before)}
    lines = source.splitlines(keepends=True)
    strings = [kept.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in lines]
    first = _STRING.search(before)
    if first is None:
        return f"[{', '.join(strings)}]"
    opening = before[: first.start()]
    closing = before[[found.end() for found in _STRING.finditer(before)][-1] :]
    between = re.search(r'"\s*(,\s*)"', before[first.end() - 1 :])
    return opening + (between[1] if between else f",{opening[1:] or ' '}").join(strings) + closing


@lru_cache(maxsize=4)  # a search changes the same few texts repeatedly
def _source_places(raw: str) -> dict[int, tuple[int, int]]:
    """Return the start and end of each cell's `source` value, by cell number."""
    decoder = _Places(raw)
    return decoder.sources()


class _Places:
    """Walks valid JSON to find the positions of values."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    def sources(self) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for key, start, _ in self._members(self._skip(0)):
            if key != "cells" or self.raw[start] != "[":
                continue
            found = {}  # of several keys, the last counts
            for number, (at, _) in enumerate(self._items(start), 1):
                for name, first, last in self._members(at):
                    if name == "source":
                        found[number] = (first, last)
        return found

    def _skip(self, at: int) -> int:
        while self.raw[at] in " \t\r\n":
            at += 1
        return at

    def _members(self, at: int) -> list[tuple[str, int, int]]:
        """Return key, start and end of every member of the object at a position."""
        found: list[tuple[str, int, int]] = []
        if self.raw[at] != "{":
            return found
        at = self._skip(at + 1)
        while self.raw[at] != "}":
            key = _STRING.match(self.raw, at)
            assert key is not None
            start = self._skip(self._skip(key.end()) + 1)
            end = self._end(start)
            found.append((parse_json(key[0]), start, end))
            at = self._skip(end)
            at = self._skip(at + 1) if self.raw[at] == "," else at
        return found

    def _items(self, at: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        at = self._skip(at + 1)
        while self.raw[at] != "]":
            end = self._end(at)
            found.append((at, end))
            at = self._skip(end)
            at = self._skip(at + 1) if self.raw[at] == "," else at
        return found

    def _end(self, at: int) -> int:
        """Return the end of the value at a position.

        Uses the C decoder: outputs can be megabytes, and a search asks hundreds of times.
        """
        end: int = _DECODER.raw_decode(self.raw, at)[1]
        return end
