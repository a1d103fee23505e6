"""The search: variants in the order of their speed, simulated until one fits.

What is left out, and why:
- Proven: a variant whose lower bound exceeds the card does not fit (`lower_bounds`).
- Tested, not proven: memory grows with the micro-batch, as long as both runs or neither hold gradients between
  micro-steps. So if a micro-batch is too large, larger ones are not simulated.
- Assumed: on each axis of kernels, the order by memory is the same whatever else is chosen; it is found by bounds on
  the run as it is. So there are leanest kernels: if deciding choices do not fit with them, they do not fit with others,
  and if a variant is too large, so is one with kernels that need more. If the order really differs (a loss that is
  leaner only in large batches), a variant that fits may be missed; a variant that does not fit is never returned.
- Estimated, if there are many variants: the order of speed. Each variant that is reached is timed, so the reported
  speeds are exact predictions; a variant may be missed if several swaps gain far more together than separately.

Rows whose lengths nobody described are simulated with full rows, and with mixed ones only for what would be the answer:
if it falls, the search goes on.

After `most` simulations, or when the workshop runs out of effort, the best variant so far that fits is the answer, and
`ended_early` is set: it may not be the fastest. If none fits by then, the callers try the few that need least.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from vramwise.variants.effort import MOST_SIMULATIONS, OutOfEffort
from vramwise.variants.search.book import Book, grade_of
from vramwise.variants.search.combinations import Pick, is_deciding
from vramwise.variants.search.estimates import Key, in_order
from vramwise.variants.search.result import OF_MEMORY, TOO_LARGE

# Up to about this many variants, each is timed and nothing is estimated.
FEW = 96
# Rounds of improving the answer; the second seldom finds a better one.
_ROUNDS = 4
# The usual number of simulations, only for the progress display.
_USUAL = 12
Progress = Callable[[int, int], None]


@dataclass(slots=True, kw_only=True)
class Search:
    """One search over one space. `most`: the number of simulations it may take.

    `slowest`: variants whose step takes longer than this many seconds are no answer.
    """

    book: Book
    most: int = MOST_SIMULATIONS
    slowest: float | None = None
    progress: Progress | None = None
    # Whether simulations or effort ran out before the answer was certain.
    ended_early: bool = False
    # Combinations of deciding choices with which nothing fits.
    dead: set[Pick] = field(default_factory=set)
    # Variants that ran out of memory, with their micro-batch and accumulation, by their other deciding choices.
    _failed: dict[Pick, list[tuple[int, int, Pick]]] = field(default_factory=dict)
    # Lower bounds of the run with each choice of an axis, with the leanest other kernels.
    _needs: dict[int, dict[str, float]] = field(default_factory=dict)
    _surveyed: bool = False
    _lean: Pick | None = None
    _few: bool | None = None
    _left_open: bool | None = None

    @property
    def few(self) -> bool:
        """Whether there are few enough variants to time each one."""
        if self._few is None:
            self._few = self.book.space.about() <= FEW
        return self._few

    @property
    def left_open(self) -> bool:
        """Whether no variant can be predicted to fit: neither the run as it is nor any variant with one change."""
        if self._left_open is None:
            self._left_open = False  # also if the effort ends before this is known
            book, start = self.book, self.book.space.start
            around = (pick for axis in range(len(book.space.axes)) for pick in book.space.around(start, axis))
            self._left_open = book.left_open(start) and all(
                book.attempt(pick).run is None or book.left_open(pick) for pick in around
            )
        return self._left_open

    def best(self) -> Pick | None:
        """Return the fastest variant that fits, or None.

        Of equally fast variants, it is the one with the fewest changes, then with the least memory.
        """
        found: Pick | None = None
        try:
            if self.left_open:
                return None
            if self.few:
                return self._first_fit(self.book.space.start)
            base = self._quickest(self.book.space.start)
            for _ in range(_ROUNDS):
                better = self._first_fit(base)
                found = found if better is None else better
                if found is None or self.ended_early:
                    break
                # Estimates around another answer may differ, so repeat until the estimates around an answer lead to
                # itself.
                around = self._quickest(found)
                if self.book.space.deciding(base, around) == base:
                    break
                base = around
        except OutOfEffort:
            self.ended_early = True
        return found

    def _quickest(self, pick: Pick) -> Pick:
        """Return the fastest kernels for a variant, each chosen separately."""
        space = self.book.space
        for axis, one in [*enumerate(space.axes)] * 2:
            if not is_deciding(one):
                timed = [
                    (key[0], at > 0, other)
                    for at, other in enumerate([pick, *space.around(pick, axis)])
                    if (key := self.book.key(other)) is not None
                ]
                pick = min(timed)[2] if timed else pick
        return pick

    def _first_fit(self, base: Pick) -> Pick | None:
        limit: Key | None = None if self.slowest is None else (grade_of(self.slowest), 0)
        won = limit
        fitting: list[tuple[int, Pick]] = []
        passed: list[Pick] = []  # as fast as those that fit, but certain to need more
        try:
            for key, pick in self.by_speed(base):
                if won is not None and key > won:
                    found = self._holding(fitting, passed)
                    if found is not None or (limit is not None and key > limit):
                        return found
                    won, fitting, passed = limit, [], []
                if fitting and self.book.least_bytes(pick) > min(fitting)[0]:
                    passed.append(pick)
                    continue
                if self.book.simulated >= self.most:
                    self.ended_early = True
                    break
                if self.fits(pick):
                    won = key
                    fitting.append((self.book.reserved_bytes(pick), pick))
            return self._holding(fitting, passed)
        except OutOfEffort:
            self.ended_early = True
        return self._holding(fitting, ())

    def _holding(self, fitting: Sequence[tuple[int, Pick]], passed: Sequence[Pick]) -> Pick | None:
        """Return the variant that needs least of those that fit with full rows and with mixed ones, or None."""
        for _, pick in sorted(fitting):
            if self.holds(pick):
                return pick
        for pick in passed:
            if self.book.simulated >= self.most:
                self.ended_early = True
                break
            if self.fits(pick) and self.holds(pick):
                return pick
        return None

    def holds(self, pick: Pick) -> bool:
        """Return whether a variant that fits with full rows does with mixed ones; what it implies is recorded."""
        if self.book.holds(pick):
            return True
        self._learn(pick)
        return False

    def by_speed(self, base: Pick) -> Iterator[tuple[Key, Pick]]:
        """Yield variants with their keys, the best first."""
        if self.few:
            yield from sorted((key, pick) for pick in self.book.space.picks() if (key := self.book.key(pick)))
            return
        waiting: list[tuple[Key, Pick]] = []
        for estimate, pick in in_order(self.book.space, self.book.key, base, self._is_dead):
            while waiting and waiting[0][0] < estimate:
                yield heappop(waiting)
            key = None if self._hopeless(pick) else self.book.key(pick)
            if key is not None:
                heappush(waiting, (key, pick))
        while waiting:
            yield heappop(waiting)

    def fits(self, pick: Pick) -> bool:
        """Return whether a variant fits; it is simulated unless that is already clear."""
        if self._hopeless(pick) or self._is_dead(pick):
            return False
        before = self.book.simulated
        attempt = self.book.judged(pick)
        if self.book.simulated > before:
            self._learn(pick)
            if self.progress is not None:
                self.progress(self.book.simulated, max(self.book.simulated + 1, _USUAL))
        return attempt.fits

    def _learn(self, pick: Pick) -> None:
        """Record what a variant that does not fit implies for others."""
        attempt = self.book.judged(pick)
        if attempt.prediction is None or attempt.fell not in OF_MEMORY:
            return
        if attempt.fell == TOO_LARGE:
            self._failed.setdefault(self._beside_batches(self.context(pick)), []).append((*self._batches(pick), pick))
        lean = self._leanest(pick)
        if lean is not None and (pick == lean or self.book.out_of_memory(lean)):
            self.dead.add(self.context(pick))

    def _hopeless(self, pick: Pick) -> bool:
        """Return whether a variant ran out of memory that has no larger micro-batch and no kernel that needs more.

        With a single micro-step, no gradients are held between micro-steps, so its peak may be lower than that of two
        micro-steps at half the size.
        """
        failed = self._failed.get(self._beside_batches(self.context(pick)))
        if not failed:
            return False
        micro, accumulation = self._batches(pick)
        return any(
            micro >= size and (accumulation > 1 or steps == 1) and self._needs_no_less(pick, other)
            for size, steps, other in failed
        )

    def _needs_no_less(self, pick: Pick, other: Pick) -> bool:
        """Return whether every kernel of a variant needs at least as much as that of the other."""
        for axis, one in enumerate(self.book.space.axes):
            if pick[axis] != other[axis] and not is_deciding(one):
                needs = self._needs.get(axis, {})
                if needs.get(pick[axis], -1) < needs.get(other[axis], 0):
                    return False
        return True

    def _is_dead(self, pick: Pick) -> bool:
        """Return whether nothing with the deciding choices of this variant fits."""
        if self.few:
            return False
        if not self._surveyed:
            self._surveyed = True
            self._survey()
        return self.context(pick) in self.dead

    def _survey(self) -> None:
        """Find the deciding choices that are too large with the leanest kernels; bounds grow with the micro-batch."""
        for chain in self._chains():
            first = bisect_left(chain, True, key=self.book.too_large)
            self.dead |= {self.context(context) for context in chain[first:]}

    def smallest(self) -> list[Pick]:
        """Return the variants that may need least: leanest kernels, smallest micro-batch, one for each other choice."""
        return [chain[0] for chain in self._chains()]

    def _chains(self) -> list[list[Pick]]:
        """Return lists of variants with the leanest kernels that differ only in micro-batch, the smallest first."""
        chains: dict[tuple[Pick, bool], list[Pick]] = {}
        for context in self.book.space.contexts(self.lean):
            if self.book.attempt(context).run is not None:
                once = self._batches(context)[1] == 1
                chains.setdefault((self._beside_batches(context), once), []).append(context)
        return [sorted(chain, key=self._batches) for chain in chains.values()]

    def _leanest(self, pick: Pick) -> Pick | None:
        """Return the variant with the same deciding choices that needs least; None if there is no bound."""
        if self.few:
            return None
        lean = self.book.space.deciding(pick, self.lean)
        return lean if self.book.least_bytes(lean) else None

    @property
    def lean(self) -> Pick:
        """The run with the kernels that need least, according to the lower bounds."""
        if self._lean is None:
            space, pick = self.book.space, self.book.space.start
            for axis, one in [*enumerate(space.axes)] * 2:
                if not is_deciding(one):
                    options = [pick, *space.around(pick, axis)]
                    self._needs[axis] = {option[axis]: self._least(option) for option in options}
                    pick = min(options, key=self._least)
            self._lean = pick
        return self._lean

    def _least(self, pick: Pick) -> float:
        unwritten = self.book.attempt(pick).run is None
        return float("inf") if unwritten else self.book.least_bytes(pick)

    def context(self, pick: Pick) -> Pick:
        """Return only the deciding choices of a variant."""
        return self.book.space.deciding(pick, self.book.space.start)

    def _batches(self, pick: Pick) -> tuple[int, int]:
        run = self.book.attempt(pick).run
        return (0, 0) if run is None else (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps)

    def _beside_batches(self, pick: Pick) -> Pick:
        axes = self.book.space.axes
        return tuple("" if axis.name == "batches" else label for axis, label in zip(axes, pick, strict=True))
