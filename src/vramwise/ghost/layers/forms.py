"""Which blocks of a model are alike: built of the same parts, on weights of the same form, under other names."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Generic, NamedTuple, Protocol

from vramwise.ghost.dtypes import DType
from vramwise.ghost.model.causal_lm import Body
from vramwise.ghost.tape import Parameter

_PLAIN = frozenset({int, float, str, bool, type(None), DType})
# units of more blocks than that are not looked for
_LONGEST_PERIOD = 12
# of a row of units the first two and the last two run
SAMPLED = 4
# fewer blocks are as fast to run
FEWEST_LEFT_OUT = 4

_FIELDS: dict[type, tuple[str, ...] | None] = {}  # found before


@dataclass(slots=True)
class Names:
    """What tells a block from those like it, in one order for all of them: labels and parameters."""

    labels: list[str] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)

    @property
    def part(self) -> str:
        """What the block is called in the labels of events."""
        return self.labels[0].partition(":")[0]


class Units(NamedTuple):
    """A row of groups of blocks, each like the one before: where it begins, how long a group is, how many there are."""

    start: int
    period: int
    number: int

    def running(self, blocks: int) -> list[int]:
        """The blocks that run: all but the groups in the middle."""
        skipped = range(self.start + 2 * self.period, self.start + (self.number - 2) * self.period)
        return [number for number in range(blocks) if number not in skipped]

    def blocks(self, unit: int) -> range:
        """The blocks of one group; counted from the last one where the number is negative."""
        first = self.start + unit % self.number * self.period
        return range(first, first + self.period)


def forms_of(body: Body) -> tuple[list[int], list[Names]]:
    """A number for the form of each block, and the names in it."""
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
    """The row of groups that saves most; None where too few blocks can be left out."""
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
    """What a part does, as a value: two parts with the same one do the same, but for names."""
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
        return object()  # like nothing else
    found: list[object] = [kind]
    for name in fields:
        item = getattr(value, name)
        if name == "label":
            names.labels.append(item)
        else:
            found.append(item if type(item) in _PLAIN else _form(item, names))
    return tuple(found)


def _fields(kind: type) -> tuple[str, ...] | None:
    """The attributes of a class of ours; None where they cannot be told."""
    if kind not in _FIELDS:
        bases = [base for base in kind.__mro__[:-1] if base not in (Protocol, Generic)]
        slots = [base.__dict__.get("__slots__") for base in bases]
        known = kind.__module__.startswith("vramwise.") and all(isinstance(names, tuple) for names in slots)
        _FIELDS[kind] = tuple([name for names in slots for name in names or ()]) if known else None
    return _FIELDS[kind]
