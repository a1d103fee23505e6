"""Find the few lines that matter in a log, as a stream of bytes and in bounded memory.

The log is read in chunks of 1 MiB. Short words are searched in the whole chunk first (a fast search in C); only the
lines around a hit are examined further. Lines are bounded: only the part around the hit is kept. Does not know what the
lines mean.

The work per chunk is bounded, too: all lines with a word of interest are examined, or a sample if there are too many.
Rare words go first: all their lines are examined. For a word on line after line, some lines are sampled evenly, plus
the first and last ones and those before a failure, where a traceback is. If that happens to a word that many failures
share ("Error"), the words of specific failures are searched instead.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import unescape
from typing import BinaryIO, NamedTuple

CHUNK_BYTES = 1 << 20
# How much of a line is kept before and after the hit.
BEFORE_BYTES = 1 << 12
AFTER_BYTES = 1 << 13
# Held back at the end of a chunk, so that the lines after a hit are available.
LOOKAHEAD_BYTES = 1 << 14
# Each part takes about a millisecond. Of endless lines, this many parts are examined; after that, one per interval.
_MOST_PARTS = 512
_BETWEEN_PARTS_BYTES = 1 << 16
_ANSI = re.compile(r"\x1b\[[0-9;:?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# Notebooks saved as HTML have a tag for each colour; as JSON they contain escaped control codes and quoted lines.
_TAG = re.compile(r"</?(?:span|pre|code|font|div|br|b|p)(?:\s[^<>]{0,400})?/?>")
_WRITTEN_ESCAPE = re.compile(r"\\u001b\[[0-9;]{0,20}m")
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Frequent lines (progress bars, logged figures) are sampled: about this many per chunk.
SAMPLES = 64
# Lines of a chunk to examine, and as many again for the words of specific failures.
MOST_HITS = 2048
# For a word with more lines: how many before each failure, and for how many failures.
_BEFORE_EACH = 64
_MOST_FAILURES = 16


class RawLine(NamedTuple):
    """A line of interest: its number, its text without colours, and where it ends in which chunk."""

    number: int
    text: str
    piece: bytes
    end: int
    sampled: bool  # found by a sampled word alone

    @property
    def preceding(self) -> str:
        """The text before the line, as far as it is in the chunk."""
        start = max(0, self.end - len(self.text.encode("utf-8", "replace")) - BEFORE_BYTES)
        return plain(_text(self.piece[start : self.end])).rpartition("\n")[0]

    @property
    def following(self) -> str:
        """The text after the line, as far as it is in the chunk."""
        return plain(_text(self.piece[self.end : self.end + AFTER_BYTES]))


class Totals:
    """How much was read."""

    def __init__(self) -> None:
        self.lines = 0
        self.size_bytes = 0
        self.parts = 0  # parts of overlong lines


def interesting_lines(stream: BinaryIO, words: Words, totals: Totals) -> Iterator[RawLine]:
    """Yield the lines that contain one of the words."""
    read = _reader(stream, totals)
    data, number = b"", 1
    finished = False
    while not finished:
        block = read()
        finished = not block
        data += block
        end = len(data) if finished else _cut(data)
        yield from _lines_in(data, end, number, words, totals)
        number += data.count(b"\n", 0, end)
        # Text after the last line end counts as a line, too.
        totals.lines = number - 1 + (finished and not data.endswith(b"\n") and data != b"")
        data = data[end:]


def plain(text: str) -> str:
    """Return the text without colours, control characters, and a saved notebook's markup for them."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "</" in text:
        text = unescape(_TAG.sub("", text))
    if "\\u001b[" in text:
        text = _WRITTEN_ESCAPE.sub("", text).lstrip(' "')
    return text


def _reader(stream: BinaryIO, totals: Totals) -> _Reader:
    first = _piece_of(stream)
    encoding = _UTF16.get(first[:2])
    return _Reader(stream, totals, first, codecs.getincrementaldecoder(encoding)("replace") if encoding else None)


class _Reader:
    """Reads chunks; UTF-16, as PowerShell's redirection writes it, becomes UTF-8."""

    def __init__(
        self, stream: BinaryIO, totals: Totals, first: bytes, decoder: codecs.IncrementalDecoder | None
    ) -> None:
        self._stream, self._totals, self._first, self._decoder = stream, totals, first, decoder

    def __call__(self) -> bytes:
        block, self._first = self._first or _piece_of(self._stream), b""
        self._totals.size_bytes += len(block)
        if self._decoder is None or not block:
            return block
        return self._decoder.decode(block).encode("utf-8", "replace") or b" "


def _piece_of(stream: BinaryIO) -> bytes:
    """Return a full chunk even if the stream returns little at a time: the cost per chunk is fixed."""
    parts = []
    missing = CHUNK_BYTES
    while missing > 0:
        part = stream.read(missing)
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _cut(data: bytes) -> int:
    """Return where a chunk may end: after a line, with the lookahead held back; within a line if it is longer."""
    latest = len(data) - LOOKAHEAD_BYTES
    if latest <= 0:
        return 0
    return max(data.rfind(b"\n", 0, latest), data.rfind(b"\r", 0, latest)) + 1 or latest


def _lines_in(data: bytes, end: int, number: int, words: Words, totals: Totals) -> Iterator[RawLine]:
    counted = done = 0
    strong, positions = positions_of(data, end, words)
    for at in positions:
        if at < done:
            continue  # on the line of the previous hit
        low, high = max(0, at - BEFORE_BYTES), at + AFTER_BYTES
        start = max(data.rfind(b"\n", low, at), data.rfind(b"\r", low, at)) + 1 or low
        stop = min(_find(data, b"\n", at, high), _find(data, b"\r", at, high))
        number += data.count(b"\n", counted, start)
        counted, done = start, stop
        if (start, stop) == (low, high):
            totals.parts += 1
            done += _BETWEEN_PARTS_BYTES if totals.parts > _MOST_PARTS else 0
        near = bisect_left(strong, start)
        sampled = near == len(strong) or strong[near] >= stop
        yield RawLine(number, plain(_text(data[start:stop])), data, stop, sampled)


def _find(data: bytes, what: bytes, start: int, stop: int) -> int:
    at = data.find(what, start, stop)
    return min(stop, len(data)) if at < 0 else at


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class Words(NamedTuple):
    """Words to search for: `failures` and `marks` always, `sampled` at intervals and always before a failure.

    `precise` is searched if a word of `failures` is too frequent.
    """

    failures: Sequence[bytes]
    marks: Sequence[bytes]
    sampled: Sequence[bytes]
    precise: Sequence[bytes] = ()


def positions_of(data: bytes, end: int, words: Words) -> tuple[list[int], list[int]]:
    """Return the positions of the words before `end`, in order: without the sampled ones, and all."""
    failing, frequent, left = _rare_first(data, end, words.failures, MOST_HITS)
    if frequent:
        precise, too_many, _ = _rare_first(data, end, words.precise, MOST_HITS)
        failing |= precise
        frequent += too_many
    marks, frequent_marks, _ = _rare_first(data, end, words.marks, left)
    failures = sorted(failing)
    found = failing | marks
    for word in frequent + frequent_marks:
        found.update(_samples(data, end, word, failures[-_MOST_FAILURES:], _BEFORE_EACH))
    strong = sorted(found)
    for word in words.sampled:
        found.update(_samples(data, end, word, failures, 1))
    return strong, sorted(found)


def _rare_first(data: bytes, end: int, words: Sequence[bytes], most: int) -> tuple[set[int], list[bytes], int]:
    """Return all positions of the rarest words up to `most` positions, the remaining words, and the unused count."""
    counted = sorted((data.count(word, 0, end + len(word) - 1), word) for word in words)
    found: set[int] = set()
    for at, (count, word) in enumerate(counted):
        if count > most:
            return found, [word for _, word in counted[at:]], most
        if count:
            found.update(_all_of(data, end, word))
            most -= count
    return found, [], most


def _all_of(data: bytes, end: int, word: bytes) -> Iterator[int]:
    last = end + len(word) - 1
    at = data.find(word, 0, last)
    while at >= 0:
        yield at
        at = data.find(word, at + len(word), last)


def _samples(data: bytes, end: int, word: bytes, hits: Sequence[int], before_each: int) -> Iterator[int]:
    """Yield some positions of a word: evenly over the chunk, and the last ones before each hit and before the end."""
    stride = end // SAMPLES + 1
    at = data.find(word, 0, end)
    if at < 0:
        return
    while at >= 0:
        yield at
        at = data.find(word, at + stride, end)
    before = 0
    for hit in (*hits, end):
        last = hit
        for _ in range(before_each):
            last = data.rfind(word, before, last)
            if last < 0:
                break
            yield last
        before = hit
