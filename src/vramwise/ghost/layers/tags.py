"""What the events of a layer are for, said in a way that holds for every layer: its label or a weight of it by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.ghost.layers.forms import Names
from vramwise.ghost.layers.passes import Unlike
from vramwise.ghost.tape import Tape


class _Mark(NamedTuple):
    """A category, and which of the layer's names the label begins with; or, where all have the same, its number."""

    category: str = ""
    place: int = -1
    rest: str = ""
    number: int = 0


class TagSlots:
    """The marks of one span, in the order in which they are met; frees have none, the number 0."""

    def __init__(self, t: Tape, sampled: Sequence[Names]) -> None:
        self._t = t
        self._names = [_all(names) for names in sampled]
        self._slots: dict[tuple[int, int], int] = {}
        self._marks = [_Mark()]

    def slot(self, low: int, high: int) -> int:
        """The place of a mark, by its number in both sampled layers; Unlike where those are not the same."""
        found = self._slots.get((low, high))
        if found is None:
            self._marks.append(_Mark(number=low) if low == high else self._found(low, high))
            found = self._slots[low, high] = len(self._marks) - 1
        return found

    def of(self, names: Names) -> tuple[int, ...]:
        """The marks of another layer."""
        known, number_of = _all(names), self._t.tag_number
        return tuple(
            [
                number if place < 0 else number_of(category, known[place] + rest)
                for category, place, rest, number in self._marks
            ]
        )

    def _found(self, low: int, high: int) -> _Mark:
        (category, label), (other_category, other) = self._t.tags[low], self._t.tags[high]
        if category == other_category:
            for place, (name, other_name) in enumerate(zip(*self._names, strict=True)):
                rest = label[len(name) :]
                if label.startswith(name) and rest[:1] in ("", ":") and other == other_name + rest:
                    return _Mark(category, place, rest)
        raise Unlike(f"another mark: {label}, {other}")


def _all(names: Names) -> list[str]:
    return [*names.labels, *[parameter.name for parameter in names.parameters]]
