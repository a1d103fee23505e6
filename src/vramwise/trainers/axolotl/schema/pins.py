"""Compares versions with the ranges of a release: `>=2.13.0,<2.15.0`.

A version without its last numbers (2.13) matches if any version that begins with them could.
"""

from __future__ import annotations

from collections.abc import Iterator

Parts = tuple[int, ...]


def admits(wanted: str, version: Parts) -> bool:
    """Return whether a version, as numbers, is within a range."""
    return all(_holds(sign, version, bound) for sign, bound in _bounds(wanted))


def shown_range(wanted: str) -> str:
    """Format a range for people: `2.13 to 2.14.0`, `2.13 to before 2.15`."""
    words = {">=": "", "<=": "to ", "<": "to before ", "==": ""}
    return " ".join(words[sign] + _shown(bound, exact=sign in ("<=", "==")) for sign, bound in _bounds(wanted))


def _bounds(wanted: str) -> Iterator[tuple[str, Parts]]:
    for words in wanted.split(","):
        sign = words[: len(words) - len(words.lstrip("<>="))]
        yield sign, tuple(int(part) for part in words[len(sign) :].split("."))


def _holds(sign: str, version: Parts, bound: Parts) -> bool:
    known = min(len(version), len(bound))
    have, limit = version[:known], bound[:known]
    if sign == ">=":
        return have >= limit
    if sign == "<=":
        return have <= limit
    if sign == "<":
        return have < limit
    return have == limit


def _shown(bound: Parts, *, exact: bool) -> str:
    parts = bound if exact or bound[-1] else bound[:-1]
    return ".".join(str(part) for part in parts)
