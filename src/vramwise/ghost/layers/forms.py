"""Finds identical blocks of a model: the same parts and weights of the same shape and type, with different names."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Generic, NamedTuple, Protocol

from vramwise.ghost.dtypes import DType
from vramwise.ghost.model.causal_lm import Body
from vramwise.ghost.tape import Parameter

_PLAIN = frozenset({int, float, str, bool, type(None), DType})
# the longest unit, in blocks, that is looked for
_LONGEST_PERIOD = 12
# the first two and the last two units of a sequence run
SAMPLED = 4
# leaving out fewer blocks saves no time
FEWEST_LEFT_OUT = 4

_FIELDS: dict[type, tuple[str, ...] | None] = {}  # cache of `_fields`


@dataclass(slots=True)
class Names:
    """The labels and parameters that distinguish a block from identical ones, in the same order for all of them."""

    labels: list[str] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)

    @property
    def part(self) -> str:
        """The name of the block in the labels of events."""
        return self.labels[0].partition(":")[0]


class Units(NamedTuple):
    """A sequence of identical groups of blocks: its first block, the length of a group, and the number of groups."""

    start: int
    period: int
    number: int

    def running(self, blocks: int) -> list[int]:
        """Return the blocks that run: all except the groups in the middle."""
        skipped = range(self.start + 2 * self.period, self.start + (self.number - 2) * self.period)
        return [number for number in range(blocks) if number not in skipped]

    def blocks(self, unit: int) -> range:
        """Return the blocks of one group. Negative numbers count from the end."""
        first = self.start + unit % self.number * self.period
        return range(first, first + self.period)


def forms_of(body: Body) -> tuple[list[int], list[Names]]:
    """Return a number for each block, equal for identical blocks, and the names in each block."""
    known: dict[object, int] = {}
    forms, names = [], []
    for number, block in enumerate(body.blocks):
        found = Names()
        form = (
            _form(block, found),
            body.kinds[number] if body.kinds else None,
            body.trained[number] if body.trained else None,
        )
        forms.append(known.setdefault(form, len(known)))
        names.append(found)
    return forms, names


def units_of(forms: list[int]) -> Units | None:
    """Return the sequence of groups that saves the most blocks, or None if it saves too few."""
    best = Units(0, 1, SAMPLED)
    for period in range(1, min(_LONGEST_PERIOD, len(forms) // SAMPLED) + 1):
        start = 0
        for at in range(len(forms) - period + 1):
            if at + period < len(forms) and forms[at] == forms[at + period]:
                continue
            found = Units(start, period, (at + period - start) // period)
            if (found.number - SAMPLED) * period > (best.number - SAMPLED) * best.period:
                best = found
            start = at + 1
    return best if (best.number - SAMPLED) * best.period >= FEWEST_LEFT_OUT else None


def _form(value: Any, names: Names) -> object:
    """Return a value that is equal for parts that do the same, apart from names. Collects the names in `names`."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is Parameter:
        names.parameters.append(value)
        storage = value.storage
        held = None if storage is None else storage.nbytes
        return (value.shape, value.dtype, value.state_dtype, value.local, value.node is None, held)
    if getattr(kind, "one_form", False):
        return value
    if kind is FunctionType:
        return value if value.__closure__ is None else object()
    if kind is tuple or kind is list:
        return (kind, *[_form(item, names) for item in value])
    fields = _fields(kind)
    if fields is None:
        return object()  # equal to nothing else
    found: list[object] = [kind]
    for name in fields:
        item = getattr(value, name)
        if name == "label":
            names.labels.append(item)
        else:
            found.append(item if type(item) in _PLAIN else _form(item, names))
    return tuple(found)


def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the attributes of a vramwise class, or None if they are not known."""
    if kind not in _FIELDS:
        bases = [base for base in kind.__mro__[:-1] if base not in (Protocol, Generic)]
        slots = [base.__dict__.get("__slots__") for base in bases]
        known = kind.__module__.startswith("vramwise.") and all(isinstance(names, tuple) for names in slots)
        _FIELDS[kind] = tuple([name for names in slots for name in names or ()]) if known else None
    return _FIELDS[kind]
