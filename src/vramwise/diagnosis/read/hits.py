"""Choose which lines of a log chunk to examine: all with a word of interest, or a sample if there are too many.

Rare words go first: all their lines are examined. For a word on line after line, some lines are sampled evenly, plus
the first and last ones and those before a failure, where a traceback is. If that happens to a word that many failures
share ("Error"), the words of specific failures are searched instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Frequent lines (progress bars, logged figures) are sampled: about this many per chunk.
SAMPLES = 64
# Lines of a chunk to examine, and as many again for the words of specific failures.
MOST_HITS = 2048
# For a word with more lines: how many before each failure, and for how many failures.
_BEFORE_EACH = 64
_MOST_FAILURES = 16


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
