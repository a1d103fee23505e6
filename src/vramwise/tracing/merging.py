"""From passes of three sizes to one program whose sizes are formulas of rows and tokens.

The three must list the same instructions. A number that is the same in all is kept; one that grows is found as
`ceil(k · rows^a · tokens^b / d) + c`, written as ["@", k, d, a, b, c], with a and b 0 or 1.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple


class Size(NamedTuple):
    """Of a batch."""

    rows: int
    tokens: int


SIZES = (Size(2, 128), Size(3, 128), Size(2, 192))


class Differs(Exception):  # noqa: N818 - not an error of the program: the caller traces one size only
    """The code does something else at another size."""


def merge(first: Any, more_rows: Any, more_tokens: Any) -> Any:
    """One value for the three."""
    if first == more_rows == more_tokens:
        return first
    values = (first, more_rows, more_tokens)
    if all(isinstance(one, dict) for one in values) and first.keys() == more_rows.keys() == more_tokens.keys():
        return {key: merge(first[key], more_rows[key], more_tokens[key]) for key in first}
    if all(isinstance(one, list | tuple) for one in values) and len(first) == len(more_rows) == len(more_tokens):
        return [merge(*items) for items in zip(*values, strict=True)]
    if all(isinstance(one, int) and not isinstance(one, bool) for one in values):
        return formula(*values)
    raise Differs(f"{first!r}, {more_rows!r}, {more_tokens!r}")


def formula(first: int, more_rows: int, more_tokens: int) -> list[Any]:
    """The formula through three values."""
    (rows, tokens), wider, longer = SIZES[0], SIZES[1].rows, SIZES[2].tokens
    by_rows, by_tokens = more_rows != first, more_tokens != first
    if by_rows and by_tokens:
        step = Fraction(more_rows - first, (wider - rows) * tokens)
        constant = first - step * rows * tokens
        fits = step * rows * longer + constant == more_tokens
    elif by_rows:
        step = Fraction(more_rows - first, wider - rows)
        constant, fits = first - step * rows, True
    else:
        step = Fraction(more_tokens - first, longer - tokens)
        constant, fits = first - step * tokens, True
    if not fits or constant.denominator != 1:
        raise Differs(f"{first}, {more_rows}, {more_tokens}")
    return ["@", step.numerator, step.denominator, int(by_rows), int(by_tokens), int(constant)]
