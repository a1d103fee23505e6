"""The code cells of a notebook: their text, and the places of their sources and lines in the JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from vramwise.errors import ConfigError
from vramwise.limits import parse_json

# A string of valid JSON.
STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_DECODER = json.JSONDecoder()
_START = re.compile(r"^\ufeff?\s*\{")
# A comment separates cells, so that the end of a cell magic is known.
CELL_END = "# %%"


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


@lru_cache(maxsize=1)  # a search edits the same file in many ways
def apart(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a notebook of only the sources of its code cells, and what the file has before, between and behind them.

    No edit changes the rest, which can be megabytes of outputs.
    """
    code = [_is_code(cell) for cell in (_loaded(text) or {})["cells"]]
    places = {number: place for number, place in source_places(text).items() if code[number - 1]}
    cells = [json.dumps({"cell_type": "code"} if one else {}) for one in code]
    for number, (start, end) in places.items():
        cells[number - 1] = f'{{"cell_type": "code", "source": {text[start:end]}}}'
    ends = [0, *(at for place in places.values() for at in place), len(text)]
    around = tuple(text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True))
    return f'{{"cells": [{", ".join(cells)}]}}', around


def whole(text: str, around: tuple[str, ...]) -> str:
    """Return the notebook whose sources and other parts `apart` returned."""
    sources = [text[start:end] for start, end in source_places(text).values()]
    return "".join(part for pair in zip(around, [*sources, ""], strict=True) for part in pair)


def _is_code(cell: Any) -> bool:
    return isinstance(cell, dict) and cell.get("cell_type") == "code"


def cells_of(text: str) -> tuple[Cell, ...]:
    """Return the code cells in order; raises ConfigError for a cell without source text."""
    found: list[Cell] = []
    line = 1
    for number, cell in enumerate((_loaded(text) or {})["cells"], 1):
        if not _is_code(cell):
            continue
        source = _source(cell, number)
        shown = source if source.endswith("\n") or not source else f"{source}\n"
        shown += f"{CELL_END}\n"
        found.append(Cell(number=number, first_line=line, source=source, text=shown))
        line += shown.count("\n")
    return tuple(found)


def _loaded(text: str) -> dict[str, Any] | None:
    try:
        found = parse_json(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("cells"), list) else None


def _source(cell: dict[str, Any], number: int) -> str:
    written = cell.get("source", "")
    lines = [written] if isinstance(written, str) else written
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"cell {number} of this notebook has no source text: open it in Jupyter and save it again")
    return "".join(lines).replace("\r\n", "\n").replace("\r", "\n")


def line_in_file(raw: str, number: int, line: int) -> int:
    """Return the line of the notebook's JSON that holds a line of a cell, both from 1."""
    start, end = source_places(raw)[number]
    strings = [found.start() for found in STRING.finditer(raw, start, end)] or [start]
    return raw.count("\n", 0, strings[min(line, len(strings)) - 1]) + 1


@lru_cache(maxsize=4)  # a search changes the same few texts repeatedly
def source_places(raw: str) -> dict[int, tuple[int, int]]:
    """Return the start and end of each cell's `source` value, by cell number."""
    decoder = _Places(raw)
    return decoder.sources()


class _Places:
    """Walks valid JSON to find the positions of values."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    def sources(self) -> dict[int, tuple[int, int]]:
        # Of a key that appears twice, the last one counts, as for every reader of JSON.
        start = {key: first for key, first, _ in self._members(self._skip(0))}["cells"]
        sources = {
            number: place
            for number, (at, _) in enumerate(self._items(start), 1)
            for name, *place in self._members(at)
            if name == "source"
        }
        return {number: (first, last) for number, (first, last) in sources.items()}

    def _skip(self, at: int) -> int:
        while self.raw[at] in " \t\r\n\ufeff":
            at += 1
        return at

    def _members(self, at: int) -> list[tuple[str, int, int]]:
        """Return key, start and end of every member of the object at a position."""
        found: list[tuple[str, int, int]] = []
        if self.raw[at] != "{":
            return found
        at = self._skip(at + 1)
        while self.raw[at] != "}":
            key = STRING.match(self.raw, at)
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
