"""Expresses the tags of a layer's events relative to the layer, by its labels and parameter names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.ghost.layers.forms import Names
from vramwise.ghost.layers.passes import Unlike
from vramwise.ghost.tape import Tape


class _Mark(NamedTuple):
    """A tag of a layer: its category, the position of the layer's name that the label begins with, and the rest.

    If the tag is the same in all layers, only its number is set.
    """

    category: str = ""
    place: int = -1
    rest: str = ""
    number: int = 0


class TagSlots:
    """The tags of one span, in order of appearance. Slot 0 is for frees, which have no tag."""

    def __init__(self, t: Tape, sampled: Sequence[Names]) -> None:
        self._t = t
        self._names = [_all(names) for names in sampled]
        self._slots: dict[tuple[int, int], int] = {}
        self._marks = [_Mark()]

    def slot(self, low: int, high: int) -> int:
        """Return the slot of a tag, given its number in both sampled layers. Raises Unlike if they do not match."""
        found = self._slots.get((low, high))
        if found is None:
            self._marks.append(_Mark(number=low) if low == high else self._found(low, high))
            found = self._slots[low, high] = len(self._marks) - 1
        return found

    def of(self, names: Names) -> tuple[int, ...]:
        """Return the numbers of these tags in another layer."""
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
