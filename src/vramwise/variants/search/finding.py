"""The search: variants by their speed, simulated in that order until one fits; then what else would do.

What is left out is left out soundly. A variant whose least need exceeds the card is not simulated. Where one has more
allocated than the card has, so have all that differ from it by a larger micro-batch alone. And where nothing fits with
the leanest kernels, nothing fits with others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import prod

from vramwise.variants.search.book import UNWRITTEN, Book, Key
from vramwise.variants.search.estimates import FEW, contexts, deciding, in_order, is_deciding
from vramwise.variants.search.fitness import TOO_LARGE
from vramwise.variants.search.space import Pick

SLOWER = "are slower"
UNTRIED = "were not tried"
# Simulations until the answer, and beyond it for what else would do; variants looked at after it.
MOST = 64
_MORE = 6
_LOOKED_AT = 300
# Others that are named, and by which share of the card one must need less than the one before.
_NAMED = 8
_APART = 0.01
# Rounds around a better and better answer; the second seldom finds another.
_ROUNDS = 4
# Simulations that a search usually takes: for progress alone.
_USUAL = 12
Progress = Callable[[int, int], None]


@dataclass(slots=True, kw_only=True)
class Search:
    """One search over one space. `most`: simulations that it may take."""

    book: Book
    most: int = MOST
    progress: Progress | None = None
    _dead: set[Pick] = field(default_factory=set)
    # Micro-batch and accumulation of variants that ask for more than there is, by all their other choices.
    _failed: dict[Pick, list[tuple[int, int]]] = field(default_factory=dict)
    _lean: Pick | None = None

    def best(self) -> Pick | None:
        """The fastest that fits; of those as fast the one with fewest changes, then with least memory."""
        base = self.book.space.start
        found = None
        for _ in range(_ROUNDS):
            found = self._first_fit(base)
            if found is None or found == base:
                break
            base = found
        return found

    def _first_fit(self, base: Pick) -> Pick | None:
        fitting: list[tuple[int, Pick]] = []
        won: Key | None = None
        for key, pick in self._in_true_order(base):
            if won is not None and key > won:
                break
            if fitting and self.book.entry(pick).least_bytes > min(fitting)[0]:
                continue
            if self.book.simulated >= self.most:
                break
            if self._fits(pick):
                won = key
                fitting.append((self._reserved(pick), pick))
        return min(fitting)[1] if fitting else None

    def others(self, best: Pick) -> list[Pick]:
        """Slower ones that need less, the fastest first: what each gigabyte costs."""
        found, least = [best], self._reserved(best)
        apart = int(self.book.entry(best).room_bytes * _APART)
        until = self.book.simulated + _MORE
        for looked, (_, pick) in enumerate(self._in_true_order(best)):
            if looked >= _LOOKED_AT or self.book.simulated >= until or len(found) > _NAMED:
                break
            if self.book.entry(pick).least_bytes > least - apart:
                continue
            if self._fits(pick) and self._reserved(pick) <= least - apart:
                found.append(pick)
                least = self._reserved(pick)
        return found[1:]

    def closest(self) -> Pick | None:
        """Where nothing fits: what needs least."""
        book, space = self.book, self.book.space
        picks = space.picks() if space.size <= FEW else contexts(space, self.lean)
        ranked = sorted((book.entry(pick).least_bytes, pick) for pick in picks if not book.entry(pick).fell)
        found: tuple[int, Pick] | None = None
        until = book.simulated + _MORE
        for least, pick in ranked:
            if book.simulated >= until or (found is not None and least >= found[0]):
                break
            if book.candidate_anyway(pick).prediction is not None:
                found = min(found or (self._reserved(pick), pick), (self._reserved(pick), pick))
        return None if found is None else found[1]

    def fallen(self, best: Pick | None) -> Counter[str]:
        """Why the others are no answer, and how many."""
        space = self.book.space
        inside = prod(
            len(choices) + 1 for name, choices in zip(space.names, space.choices, strict=True) if not is_deciding(name)
        )
        found: Counter[str] = Counter({TOO_LARGE: inside * len(self._dead), UNWRITTEN: self.book.unwritten()})
        for pick, candidate in self.book.candidates().items():
            if candidate.fell and self._context(pick) not in self._dead:
                found[candidate.fell] += 1
        found[SLOWER if best is not None else UNTRIED] = max(0, space.size - found.total() - (best is not None))
        return +found

    @property
    def lean(self) -> Pick:
        """The kernels with which the run needs least, as its bounds have it; all else as it is."""
        if self._lean is None:
            space, pick = self.book.space, self.book.space.start
            for axis, name in [*enumerate(space.names)] * 2:
                if not is_deciding(name):
                    options = [(*pick[:axis], at, *pick[axis + 1 :]) for at in range(len(space.choices[axis]) + 1)]
                    pick = min([pick, *options], key=self._least)
            self._lean = pick
        return self._lean

    def _least(self, pick: Pick) -> float:
        entry = self.book.entry(pick)
        return float("inf") if entry.fell else entry.least_bytes

    def _in_true_order(self, base: Pick) -> Iterator[tuple[Key, Pick]]:
        """Variants by their real keys: each is timed when the estimate says that its turn has come."""
        waiting: list[tuple[Key, int, Pick]] = []
        for estimate, pick in in_order(self.book.space, self.book.key, base, self._is_dead):
            while waiting and waiting[0][0] < estimate:
                key, _, first = heappop(waiting)
                yield key, first
            real = None if self._hopeless(pick) else self.book.key(pick)
            if real is not None:
                heappush(waiting, (real, self.book.entry(pick).least_bytes, pick))
        while waiting:
            key, _, first = heappop(waiting)
            yield key, first

    def _fits(self, pick: Pick) -> bool:
        if self._hopeless(pick) or self._is_dead(pick):
            return False
        before = self.book.simulated
        candidate = self.book.candidate(pick)
        if self.book.simulated > before:
            self._learn(pick)
            if self.progress is not None:
                self.progress(self.book.simulated, max(self.book.simulated + 1, _USUAL))
        return candidate.fits

    def _learn(self, pick: Pick) -> None:
        """What a variant that does not fit says of others."""
        candidate = self.book.candidate(pick)
        prediction = candidate.prediction
        if prediction is None or candidate.fell != TOO_LARGE:
            return
        if prediction.needs.peak_allocated_bytes > (prediction.capacity_bytes or 0):
            self._failed.setdefault(self._beside_batches(pick), []).append(self._batches(pick))
        lean = deciding(self.book.space, pick, self.lean)
        if self.book.space.size > FEW and (pick == lean or self.book.candidate(lean).fell == TOO_LARGE):
            self._dead.add(self._context(pick))

    def _hopeless(self, pick: Pick) -> bool:
        """Whether a smaller micro-batch already asked for more than there is.

        Gradients that are held from one micro-step to the next are missing where there is one micro-step: its peak may
        be lower than that of two at half the size.
        """
        micro, accumulation = self._batches(pick)
        failed = self._failed.get(self._beside_batches(pick), ())
        return any(micro >= size and (accumulation > 1 or steps == 1) for size, steps in failed)

    def _is_dead(self, pick: Pick) -> bool:
        """Whether nothing with the deciding choices of this variant fits."""
        if self.book.space.size <= FEW:
            return False
        context = self._context(pick)
        lean = deciding(self.book.space, pick, self.lean)
        if context not in self._dead and (self._hopeless(lean) or self.book.entry(lean).too_large):
            self._dead.add(context)
        return context in self._dead

    def _context(self, pick: Pick) -> Pick:
        return deciding(self.book.space, pick, self.book.space.start)

    def _batches(self, pick: Pick) -> tuple[int, int]:
        space, run = self.book.space, self.book.entry(self.book.space.start).attempt.run
        assert run is not None
        micro = space.field(pick, "micro_batch_size", run.micro_batch_size)
        return micro, space.field(pick, "gradient_accumulation_steps", run.gradient_accumulation_steps)

    def _beside_batches(self, pick: Pick) -> Pick:
        return tuple(0 if name == "batches" else at for name, at in zip(self.book.space.names, pick, strict=True))

    def _reserved(self, pick: Pick) -> int:
        prediction = self.book.candidate(pick).prediction
        assert prediction is not None
        return prediction.needs.highest_reserved_bytes
