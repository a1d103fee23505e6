"""Match a config's regular expressions against a model's module names in bounded time.

Python's matcher backtracks: `(.*a*)*x` takes practically forever. It is used for patterns that cannot do that; for
others, the set of positions where each part can end is computed, each once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from vramwise.errors import VramwiseError

_parser: Any = re._parser  # type: ignore[attr-defined]

# Longer patterns list modules one by one; patterns that need sets cost more.
_LONGEST, _LONGEST_BY_SETS = 20_000, 1_000
# With up to this many repetitions of single characters, Python's matcher needs few steps on module names.
_FEW = 2
_MANY = 1000
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_UNFOLLOWED = frozenset({"GROUPREF", "GROUPREF_EXISTS", "ATOMIC_GROUP", "POSSESSIVE_REPEAT"})
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_CATEGORIES: Mapping[str, Callable[[str], bool]] = {
    "DIGIT": str.isdecimal,
    "SPACE": str.isspace,
    "WORD": lambda one: one.isalnum() or one == "_",
}


class Pattern:
    """A regular expression. Raises VramwiseError, prefixed with `what`, if it is invalid or cannot be followed."""

    def __init__(self, text: str, what: str) -> None:
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        if len(text) > _LONGEST:
            raise VramwiseError(f"{what}: '{shown}' has {len(text):,} characters: the limit is {_LONGEST:,}")
        try:
            self._compiled = re.compile(text)
            self._tree: Any = _parser.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise VramwiseError(f"{what}: '{shown}' is not a regular expression: {error}") from None
        self._by_sets = _repeats(self._tree) > _FEW
        if self._by_sets and (len(text) > _LONGEST_BY_SETS or not _is_followed(self._tree)):
            raise VramwiseError(f"{what}: '{shown}' may take forever to match: use fewer repetitions")

    def fullmatch(self, name: str) -> bool:
        """Return whether it matches the whole name."""
        if not self._by_sets:
            return self._compiled.fullmatch(name) is not None
        return len(name) in _Ends(name).of(self._tree, 0)

    def match(self, name: str) -> bool:
        """Return whether it matches the name from its start."""
        if not self._by_sets:
            return self._compiled.match(name) is not None
        return bool(_Ends(name).of(self._tree, 0))


@lru_cache(maxsize=256)
def pattern_of(text: str, what: str) -> Pattern:
    """Return the pattern, compiled once."""
    return Pattern(text, what)


def _parts(op: str, value: Any) -> Iterable[Any]:
    """Return the subpatterns of one part."""
    if op in _REPEATS:
        return (value[2],)
    if op == "SUBPATTERN":
        return (value[3],)
    if op == "BRANCH":
        return tuple(value[1])
    return (value[1],) if op in ("ASSERT", "ASSERT_NOT") else ()


def _repeats(tree: Any) -> int:
    """Return how many single characters may repeat; a repetition of anything longer counts as very many."""
    found = 0
    for op, value in tree:
        name = str(op)
        if name in _UNFOLLOWED:
            found += _MANY
        elif name in _REPEATS and value[1] > 1:
            found += 1 if _is_single(value[2]) else _MANY
        else:
            found += sum(_repeats(part) for part in _parts(name, value))
    return found


def _is_single(tree: Any) -> bool:
    """Return whether it matches exactly one character."""
    return len(tree) == 1 and str(tree[0][0]) in _SINGLE


def _is_followed(tree: Any) -> bool:
    """Return whether `_Ends` supports every part of it, and no flags change what characters match."""
    plain = tree.state.flags in (0, int(re.UNICODE))
    for op, value in tree:
        if str(op) == "SUBPATTERN" and (value[1] or value[2]):
            return False
        if str(op) in ("ASSERT", "ASSERT_NOT") and value[0] < 0:
            return False
        if not hasattr(_Ends, f"_{str(op).lower()}") or not all(map(_is_followed, _parts(str(op), value))):
            return False
    return plain


class _Ends:
    """Where parts of a pattern can end in a name, by where they begin."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def of(self, tree: Any, start: int) -> frozenset[int]:
        """Return where a sequence of parts can end: each part begins where the one before can end."""
        if (id(tree), start) not in self._known:
            places = frozenset([start])
            for op, value in tree:
                part = getattr(self, f"_{str(op).lower()}")
                places = frozenset(end for place in places for end in part(value, place))
            self._known[id(tree), start] = places
        return self._known[id(tree), start]

    def _one(self, place: int, fits: bool) -> Iterable[int]:
        return (place + 1,) if fits else ()

    def _literal(self, value: int, place: int) -> Iterable[int]:
        return self._one(place, self._name[place : place + 1] == chr(value))

    def _not_literal(self, value: int, place: int) -> Iterable[int]:
        return self._one(place, self._name[place : place + 1] not in ("", chr(value)))

    def _any(self, _: None, place: int) -> Iterable[int]:
        return self._one(place, self._name[place : place + 1] not in ("", "\n"))

    def _in(self, value: Any, place: int) -> Iterable[int]:
        one = self._name[place : place + 1]
        negated = str(value[0][0]) == "NEGATE"
        return self._one(place, bool(one) and any(_holds(str(op), item, one) for op, item in value) != negated)

    def _branch(self, value: Any, place: int) -> Iterable[int]:
        return frozenset().union(*[self.of(tree, place) for tree in value[1]])

    def _subpattern(self, value: Any, place: int) -> Iterable[int]:
        return self.of(value[3], place)

    def _max_repeat(self, value: Any, place: int) -> Iterable[int]:
        least, most, tree = value
        places, found = frozenset([place]), frozenset([place] if least == 0 else ())
        for count in range(1, int(most) + 1):
            following = frozenset(end for start in places for end in self.of(tree, start))
            ended = following == places or (count > least and following <= found)
            places = following
            found |= places if count >= least or ended else frozenset()
            if ended or not places:
                break
        return found

    _min_repeat = _max_repeat

    def _at(self, value: Any, place: int) -> Iterable[int]:
        start = str(value) in ("AT_BEGINNING", "AT_BEGINNING_STRING")
        here = place == 0 if start else str(value) in ("AT_END", "AT_END_STRING") and place == len(self._name)
        return (place,) if here else ()

    def _assert(self, value: Any, place: int) -> Iterable[int]:
        return (place,) if self.of(value[1], place) else ()

    def _assert_not(self, value: Any, place: int) -> Iterable[int]:
        return () if self.of(value[1], place) else (place,)


def _holds(op: str, item: Any, one: str) -> bool:
    """Return whether a character class contains this character."""
    if op == "LITERAL":
        return bool(ord(one) == item)
    if op == "RANGE":
        return bool(item[0] <= ord(one) <= item[1])
    if op == "CATEGORY":
        words = str(item).removeprefix("CATEGORY_")
        return _CATEGORIES[words.removeprefix("NOT_")](one) != words.startswith("NOT_")
    return False
