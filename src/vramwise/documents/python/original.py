"""Writes changes of the code back into the file, so that every other character of the file stays as it is.

The code is what Python sees: without a byte order mark, with `\\n` as the only line end, and for a notebook the joined
sources of its code cells. The file has a mark, an encoding, other line ends, and JSON strings with escapes.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vramwise.documents.python.notebook import CELL_END, STRING, Cell, source_places
from vramwise.documents.refusal import EditRefused
from vramwise.errors import ConfigError
from vramwise.limits import parse_json

_CODING = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BREAK = re.compile("\r\n|\r|\n")
# One character of a JSON string: a pair of surrogates, another escape, or the character itself.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)


class Splice(NamedTuple):
    """New text for a span of the code."""

    start: int
    end: int
    text: str


class _String(NamedTuple):
    """One JSON string of a cell's source: where its characters are in the file and in the joined source."""

    start: int
    end: int
    first: int
    last: int


def decoded(data: bytes) -> tuple[str, str]:
    """Return the text of a source with its mark and line ends, and its encoding; raises ConfigError if unreadable."""
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        declared = next(filter(None, map(_CODING.match, data.splitlines()[:2])), None)
        encoding = declared[1].decode("ascii") if declared is not None else "utf-8"
        try:
            text = data.decode(encoding)
            exact = text.encode(encoding) == data
        except (UnicodeError, LookupError, ValueError):
            raise ConfigError("this source is not UTF-8 text: save it as UTF-8", line=1, column=1) from error
    if not exact:
        raise ConfigError(f"{encoding} text cannot be written back exactly: save it as UTF-8", line=1, column=1)
    return text, encoding


def code_of(text: str) -> str:
    """Return a text without its mark and with `\\n` as the only line end."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def spliced(raw: str, encoding: str, cells: Sequence[Cell], splices: Sequence[Splice]) -> bytes:
    """Return the file with new texts for spans of its code; raises EditRefused if it cannot be written."""
    for splice in sorted(splices, reverse=True):
        raw = _in_notebook(raw, cells, splice) if cells else _in_script(raw, splice)
    try:
        return raw.encode(encoding)
    except UnicodeError:
        raise EditRefused(
            f"the new text has a character that {encoding} does not have: save the file as UTF-8"
        ) from None


def _in_script(raw: str, splice: Splice) -> str:
    mark = int(raw.startswith("\ufeff"))
    start, end = (at + mark for at in _unified(raw[mark:], splice.start, splice.end))
    return raw[:start] + splice.text.replace("\n", _break_at(raw, start)) + raw[end:]


def _unified(text: str, *offsets: int) -> list[int]:
    """Return the places in a text of offsets in the same text with `\\n` as the only line end."""
    pairs = [found.start() - before for before, found in enumerate(re.finditer("\r\n", text))]
    return [offset + bisect_left(pairs, offset) for offset in offsets]


def _break_at(text: str, at: int) -> str:
    """Return the line end of the line at a place; another one of the text if it has none."""
    found = _BREAK.search(text, at) or _BREAK.search(text)
    return "\n" if found is None else found[0]


def _in_notebook(raw: str, cells: Sequence[Cell], splice: Splice) -> str:
    offset = 0
    for cell in cells:
        inside = len(cell.text) - len(CELL_END) - 1
        if offset <= splice.start and splice.end <= offset + inside:
            moved = [min(at - offset, len(cell.source)) for at in splice[:2]]
            return _in_cell(raw, source_places(raw)[cell.number], Splice(moved[0], moved[1], splice.text))
        offset += len(cell.text)
    raise EditRefused("the change is not within one cell: make it by hand")


def _in_cell(raw: str, place: tuple[int, int], splice: Splice) -> str:
    """Return the notebook's JSON with new text for a span of the cell whose source is at a place."""
    strings, source = _strings(raw, *place)
    start, end = _unified(source, splice.start, splice.end)
    ascii_only = raw[slice(*place)].isascii()
    parts = [splice.text.replace("\n", _break_at(source, start))]
    if not strings:  # `[]`
        return f"{raw[: place[0] + 1]}{json.dumps(parts[0], ensure_ascii=ascii_only)}{raw[place[1] - 1 :]}"
    if all(source[one.last - 1 : one.last] in ("\n", "\r") for one in strings[:-1]) and raw[place[0]] == "[":
        parts = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", parts[0])
    written = _between(raw, place, strings).join(json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in parts)
    whole = start != end and any(one.first == start for one in strings)
    behind = whole and end < len(source)
    first = _place(raw, strings, start, behind=behind)
    return raw[:first] + written + raw[_place(raw, strings, end, behind=behind) :]


def _strings(raw: str, start: int, end: int) -> tuple[list[_String], str]:
    """Return the strings of a source, and their joined text."""
    found: list[_String] = []
    texts: list[str] = []
    length = 0
    for string in STRING.finditer(raw, start, end):
        texts.append(parse_json(string[0]))
        found.append(_String(string.start() + 1, string.end() - 1, length, length + len(texts[-1])))
        length = found[-1].last
    return found, "".join(texts)


def _between(raw: str, place: tuple[int, int], strings: Sequence[_String]) -> str:
    """Return what is between two strings of a source, from quote to quote."""
    for one, other in pairwise(strings):
        return raw[one.end : other.start]
    before = raw[place[0] + 1 : strings[0].start - 1]
    return f'",{before or " "}"'


def _place(raw: str, strings: Sequence[_String], offset: int, *, behind: bool) -> int:
    """Return the place in the file of an offset in a cell's source.

    Between two strings it is the end of the first one, or with `behind` the start of the second.
    """
    inside = [one for one in strings if one.first <= offset <= one.last]
    string = inside[-1] if behind else inside[0]
    characters = _CHARACTER.finditer(raw, string.start, string.end)
    return next((one.start() for at, one in enumerate(characters) if at == offset - string.first), string.end)
