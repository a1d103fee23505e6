"""Merges passes of three batch sizes into one program whose sizes are formulas of rows and tokens.

The three passes must have the same instructions. A number that is the same in all three is kept. A number that grows
becomes `ceil(k · rows^a · tokens^b / d) + c`, written as ["@", k, d, a, b, c]; a and b are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple


class Size(NamedTuple):
    """The size of a batch."""

    rows: int
    tokens: int


class Differs(Exception):  # noqa: N818 - not an error of the program: the model cannot be traced
    """The model's code behaves differently at another batch size."""


def sizes(positions: int) -> tuple[Size, Size, Size, Size]:
    """Return three sizes to derive the formulas from and one to check them.

    If the model has enough positions, the sizes are longer than the chunks that scans work in.
    """
    unit = 64 if positions <= 1024 else 256
    return Size(2, 2 * unit), Size(3, 2 * unit), Size(2, 3 * unit), Size(3, 4 * unit)


def merge(at: Sequence[Size], first: Any, more_rows: Any, more_tokens: Any) -> Any:
    """Merge the values seen at three sizes into one. Raises Differs if they do not match."""
    if first == more_rows == more_tokens:
        return first
    values = (first, more_rows, more_tokens)
    if all(isinstance(one, dict) for one in values) and first.keys() == more_rows.keys() == more_tokens.keys():
        return {key: merge(at, first[key], more_rows[key], more_tokens[key]) for key in first}
    if all(isinstance(one, list | tuple) for one in values) and len(first) == len(more_rows) == len(more_tokens):
        return [merge(at, *items) for items in zip(*values, strict=True)]
    if all(isinstance(one, int) and not isinstance(one, bool) for one in values):
        return formula(at, *values)
    raise Differs(f"{first!r:.80}, {more_rows!r:.80}, {more_tokens!r:.80}")


def formula(at: Sequence[Size], first: int, more_rows: int, more_tokens: int) -> list[Any]:
    """Return the formula that gives these three values. Raises Differs if there is none."""
    (rows, tokens), wider, longer = at[0], at[1].rows, at[2].tokens
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


def check(merged: Any, seen: Any, size: Size) -> None:
    """Raise Differs if the formulas do not give the values seen at another size."""
    if isinstance(merged, list) and merged[:1] == ["@"]:
        _, k, d, by_rows, by_tokens, constant = merged
        product = k * (size.rows if by_rows else 1) * (size.tokens if by_tokens else 1)
        if -(-product // d) + constant != seen:
            raise Differs(f"{seen} at {size.rows} × {size.tokens}")
    elif isinstance(merged, dict) and isinstance(seen, dict) and merged.keys() == seen.keys():
        for key, value in merged.items():
            check(value, seen[key], size)
    elif isinstance(merged, list | tuple) and isinstance(seen, list | tuple) and len(merged) == len(seen):
        for one, other in zip(merged, seen, strict=True):
            check(one, other, size)
    elif merged != seen:
        raise Differs(f"{merged!r:.80}, {seen!r:.80} at {size.rows} × {size.tokens}")
