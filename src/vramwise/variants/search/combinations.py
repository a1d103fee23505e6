"""The variants of a run: on every axis, one of its choices or the run's own value.

The choices of an axis may depend on the axes before it, never on those after it. A variant is therefore identified by
what it sets on each axis, and its changes are looked up in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from vramwise.types import Change, RunSpec
from vramwise.variants.axes import Axis

# A variant: what it sets on each axis, "" for the run's own value.
Pick = tuple[str, ...]
# Axes that decide how much work there is; the others each swap one kernel for another.
_DECIDING = frozenset(
    {"method", "sharding", "length", "targets", "packing", "precision", "experts", "batches", "checkpointing"}
)
Resolved = Callable[[Sequence[Change]], RunSpec | None]


def is_deciding(axis: Axis) -> bool:
    """Return whether the effect of other choices depends on this axis."""
    return axis.name in _DECIDING


def count_changes(pick: Pick) -> int:
    """Return on how many axes a variant differs from the run."""
    return sum(map(bool, pick))


def label(change: Change) -> str:
    """Return a label of what a change sets, independent of earlier changes."""
    return " ".join(f"{name}={value!r}" for name, value in change.fields.items())


@dataclass(slots=True, kw_only=True)
class Space:
    """The axes and what they offer.

    `resolved`: returns the run with some changes, or None if they cannot be written.
    """

    axes: tuple[Axis, ...]
    resolved: Resolved
    _offers: dict[tuple[int, Pick], Mapping[str, Change]] = field(default_factory=dict)

    @property
    def start(self) -> Pick:
        """The run as it is."""
        return ("",) * len(self.axes)

    def offers(self, axis: int, pick: Pick) -> Mapping[str, Change]:
        """Return what an axis offers to a variant, by label; choices on later axes have no effect."""
        before = pick[:axis]
        if (axis, before) not in self._offers:
            found = self.changes((*before, *[""] * (len(self.axes) - axis)))
            run = None if found is None else self.resolved(found)
            choices = [] if run is None else self.axes[axis].choices(run)
            self._offers[axis, before] = {label(change): change for change in choices}
        return self._offers[axis, before]

    def changes(self, pick: Pick) -> tuple[Change, ...] | None:
        """Return the changes of a variant, axis by axis; None if an axis does not offer one of them."""
        found: list[Change] = []
        for axis, wanted in enumerate(pick):
            if wanted:
                change = self.offers(axis, pick).get(wanted)
                if change is None:
                    return None
                found.append(change)
        return tuple(found)

    def around(self, pick: Pick, axis: int) -> Iterator[Pick]:
        """Yield the variant with each other choice on one axis."""
        for wanted in ("", *self.offers(axis, pick)):
            if wanted != pick[axis]:
                yield (*pick[:axis], wanted, *pick[axis + 1 :])

    def picks(self, *, among: Callable[[Axis], bool] = lambda _: True, base: Pick | None = None) -> Iterator[Pick]:
        """Yield every variant; with `among`, only those that differ from `base` on such axes."""
        yield from self._from(0, self.start if base is None else base, among)

    def _from(self, axis: int, pick: Pick, among: Callable[[Axis], bool]) -> Iterator[Pick]:
        if axis == len(self.axes):
            yield pick
        elif not among(self.axes[axis]):
            yield from self._from(axis + 1, pick, among)
        else:
            for other in (pick, *self.around(pick, axis)):
                yield from self._from(axis + 1, other, among)

    def swaps(self, pick: Pick) -> int:
        """Return how many variants share the deciding choices of this one."""
        sizes = [len(self.offers(axis, pick)) + 1 for axis, one in enumerate(self.axes) if not is_deciding(one)]
        return prod(sizes)

    def about(self) -> int:
        """Estimate the number of variants from what each axis offers to the run as it is."""
        return prod(len(self.offers(axis, self.start)) + 1 for axis in range(len(self.axes)))

    def deciding(self, pick: Pick, others: Pick) -> Pick:
        """Return the deciding choices of one variant combined with the other choices of another."""
        return tuple(
            one if is_deciding(axis) else other for axis, one, other in zip(self.axes, pick, others, strict=True)
        )

    def contexts(self, base: Pick) -> Iterator[Pick]:
        """Yield every combination of deciding choices, with all other choices as in `base`."""
        return self.picks(among=is_deciding, base=base)
