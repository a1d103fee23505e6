"""How large the result of an operator, a method or a function can be: upper bounds, charged before anything is built.

Each table names everything that is evaluated; what is not in it is not.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from vramwise.limits.ceilings import READER_VALUE_UNITS
from vramwise.limits.meter import measure, rendered

_Size = Callable[..., int]
_NEVER = READER_VALUE_UNITS + 1
_LARGEST_POWER, _LARGEST_BASE = 64, 1_000_000
# A width of four digits belongs to no name of a run.
_WIDE = re.compile(r"\d{4}")
_DIGITS = re.compile(r"\d{1,3}")
# `%f` writes a float, or a whole number as one, with as many digits.
_NUMBER_UNITS = 330


def of_parts(*values: Any) -> int:
    """Of a result that is no larger than its parts together."""
    return sum(map(measure, values))


def _times(left: Any, right: Any) -> int:
    for sized, count in ((left, right), (right, left)):
        if isinstance(sized, str | bytes | list | tuple) and isinstance(count, int):
            return 1 + measure(sized) * max(count, 0)
    return of_parts(left, right)


def _power(left: Any, right: Any) -> int:
    """Numbers beyond these are no settings."""
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return 50 if numbers and abs(right) <= _LARGEST_POWER and abs(left) <= _LARGEST_BASE else _NEVER


def _remainder(left: Any, right: Any) -> int:
    if not isinstance(left, str | bytes):
        return of_parts(left, right)
    left = left.decode("latin-1") if isinstance(left, bytes) else left
    if "*" in left or _WIDE.search(left):
        return _NEVER
    values = right if isinstance(right, tuple | list) else right.values() if isinstance(right, Mapping) else [right]
    return _filled(left, left.count("%"), *values)


def _formatted(text: str, *values: Any) -> int:
    try:
        fields = [(name, spec or "") for _, name, spec, _ in Formatter().parse(text) if name is not None]
    except ValueError:  # no text for `format`
        return len(text)
    if any("." in name or "{" in spec or _WIDE.search(spec) for name, spec in fields):
        return _NEVER
    return _filled(text, len(fields), *values)


def _filled(text: str, places: int, *values: Any) -> int:
    """Of a text in which every place may hold every value, as wide as any number of three digits in the text says."""
    sizes = (_NUMBER_UNITS if isinstance(one, int | float) else 0 for one in values)
    width = sum(map(int, _DIGITS.findall(text)))
    return len(text) + width + places * (sum(map(rendered, values)) + sum(sizes))


def _replaced(text: str, old: Any = "", new: Any = "", *_: Any) -> int:
    count = text.count(old) if isinstance(old, str) else 0
    return len(text) + count * len(new) if isinstance(new, str) else len(text)


def _joined(text: str, parts: Any = (), *_: Any) -> int:
    return measure(parts) * (1 + len(text))


def _tripled(text: str, *given: Any) -> int:
    """Of a change of case: one character may become three."""
    return 3 * len(text) + of_parts(*given)


def _split(text: str, *given: Any) -> int:
    """Of parts that are separate texts."""
    return 2 * len(text) + 2 + of_parts(*given)


def _rounded(value: Any = 0, digits: Any = 0, *_: Any) -> int:
    return _number(value) + (abs(digits) if isinstance(digits, int) else 1)


def as_text(*values: Any) -> int:
    """Of values that are written as text."""
    return sum(rendered(one) + 1 for one in values)


def _listed(value: Any = (), *_: Any) -> int:
    return 3 * measure(value) + 1


def _number(*values: Any) -> int:
    """Of a whole number: that of the largest float has a thousand bits."""
    return of_parts(*values) + 40


def is_in(left: Any, right: Any) -> bool:
    """Return `left in right`."""
    return left in right


def is_not_in(left: Any, right: Any) -> bool:
    """Return `left not in right`."""
    return left not in right


OPERATORS: Mapping[Callable[[Any, Any], Any], _Size] = {
    operator.mul: _times,
    operator.pow: _power,
    operator.mod: _remainder,
    **dict.fromkeys((operator.add, operator.sub, operator.truediv, operator.floordiv, operator.or_), of_parts),
    **dict.fromkeys((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge), of_parts),
    **dict.fromkeys((operator.is_, operator.is_not, is_in, is_not_in), of_parts),
}
METHODS: Mapping[str, _Size] = {
    "format": _formatted,
    "replace": _replaced,
    "join": _joined,
    **dict.fromkeys(("lower", "upper", "title", "capitalize"), _tripled),
    **dict.fromkeys(("split", "rsplit"), _split),
    **dict.fromkeys(("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "startswith", "endswith"), of_parts),
}
FUNCTIONS: Mapping[str, _Size] = {
    **dict.fromkeys(("int", "float", "math.ceil", "math.floor"), _number),
    **dict.fromkeys(("bool", "len", "abs", "min", "max"), of_parts),
    "round": _rounded,
    **dict.fromkeys(("list", "tuple"), _listed),
    **dict.fromkeys(("str", "os.path.join", "os.path.expanduser", "os.path.abspath", "pathlib.Path", "Path"), as_text),
}


def size_of(bound: _Size, values: Sequence[Any]) -> int:
    """Return the bound for these values; no result if the call itself is wrong."""
    try:
        return bound(*values)
    except TypeError:
        return of_parts(*values)
