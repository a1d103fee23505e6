"""No pattern of `diagnose` takes time that grows faster than its text, whatever the text is made of."""

import importlib
import pkgutil
import random
import re
import time
from re import _constants as kinds
from re import _parser

import pytest

import vramwise.diagnosis

# As long as a line gets: of a longer one the part around a hit is kept.
SHORT, LONG = 1_000, 8_000
# Eight times the text: a linear pattern takes eight times as long, a quadratic one 64 times.
TOO_MUCH = 28
# Faster than this on the longest text is fast enough, and too fast to measure.
SECONDS = 0.002

BLOCKS = (
    " ",
    "\t ",
    "0",
    "a",
    "A",
    "Error",
    "│ ",
    "| ",
    "[",
    '"',
    "'",
    "1.",
    ":",
    "-",
    ">",
    "_",
    "FP8",
    "x.",
    "\u00a0",
)


def _patterns_in(value, depth=0):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _patterns_in(tuple(value.values()), depth + 1)
    elif isinstance(value, (tuple, list)) and depth < 4:
        for one in value:
            yield from _patterns_in(one, depth + 1)


def all_patterns():
    """Every compiled pattern of the package and its sub-rooms, by its text."""
    found = {}
    for module in pkgutil.walk_packages(vramwise.diagnosis.__path__, "vramwise.diagnosis."):
        for value in vars(importlib.import_module(module.name)).values():
            found.update((pattern.pattern, pattern) for pattern in _patterns_in(value))
    return [found[text] for text in sorted(found)]


def example(parsed, rng, stop):
    """A text that a pattern likes, as far as its part number `stop`: its choices taken at random, its repeats long."""
    parts = []
    for at, (kind, value) in enumerate(parsed):
        if at >= stop:
            break
        parts.append(_part(kind, value, rng))
    return "".join(parts)


def _part(kind, value, rng):
    if kind is kinds.LITERAL:
        return chr(value)
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        low, high, inner = value
        return "".join(example(inner, rng, 99) for _ in range(rng.choice((low, min(high, low + 30)))))
    if kind is kinds.SUBPATTERN:
        return example(value[3], rng, 99)
    if kind is kinds.BRANCH:
        return example(rng.choice(value[1]), rng, 99)
    if kind is kinds.IN:
        return _one_of(value, rng)
    return "x" if kind in (kinds.ANY, kinds.NOT_LITERAL) else ""


def _one_of(choices, rng):
    if choices[0][0] is kinds.NEGATE:
        return "x"
    kind, value = rng.choice(choices)
    if kind is kinds.CATEGORY:
        return {kinds.CATEGORY_DIGIT: "1", kinds.CATEGORY_SPACE: " ", kinds.CATEGORY_WORD: "w"}.get(value, "-")
    return chr(value[0]) if kind is kinds.RANGE else chr(value)


def attacks(pattern):
    """Texts to repeat: common characters, and beginnings of what the pattern is looking for."""
    rng = random.Random(0)
    parsed = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    yield from BLOCKS
    for stop in range(1, len(parsed) + 1):
        begun = example(parsed, rng, stop)
        if begun:
            yield begun
            yield begun[:-1] + " " * 40
            yield begun[-1]


def seconds(pattern, text, times=2):
    best = 1e9
    for _ in range(times):
        start = time.process_time()
        pattern.search(text)
        best = min(best, time.process_time() - start)
    return best


def grows_too_fast(pattern, piece, end):
    short, long = ((piece * (size // len(piece) + 1))[:size] + end for size in (SHORT, LONG))
    if seconds(pattern, long, times=1) <= SECONDS:
        return False
    # On a busy machine a single measurement may be far off.
    return all(seconds(pattern, long) > max(SECONDS, TOO_MUCH * seconds(pattern, short)) for _ in range(3))


def test_all_patterns_are_found():
    texts = [pattern.pattern for pattern in all_patterns()]
    assert len(texts) > 130
    assert any("would exceed allowed" in text for text in texts)
    assert any("vocab_size" in text for text in texts)


def test_a_quadratic_pattern_would_be_noticed():
    assert grows_too_fast(re.compile(r"[│|\s]*$"), " ", "x")


@pytest.mark.parametrize("pattern", all_patterns(), ids=lambda pattern: pattern.pattern[:60])
def test_linear(pattern):
    for piece in attacks(pattern):
        for end in ("", "\0"):
            assert not grows_too_fast(pattern, piece, end), piece
