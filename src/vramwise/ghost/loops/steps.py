"""The steps of a run by the shapes of their micro-batches, however many there are, and when they empty the cache.

A step of thousands of micro-batches holds all of them, but trains only those that differ: repetitions of the previous
shape are counted, and of very many different ones the first, the widest and the last are used.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from vramwise.ghost.dtypes import INT64
from vramwise.ghost.loops.batches import BatchShape
from vramwise.types import RunSpec
from vramwise.units import MIB

# This many micro-batches of a step are held individually; the rest is held together in a few pieces.
_HELD_SINGLY = 1024
_MOST_PIECES, _PIECE = 256, 2 * MIB
# Limit on micro-steps of different shapes in one step, times the model's layers: a second of simulation.
_LAYERS_PER_STEP = 1280
_MOST_DIFFERENT, FEWEST_DIFFERENT = 64, 4
# Tensors of a batch, and the allocator's rounding.
_BATCH_TENSORS, _ROUNDED = 3, 512


class MicroStep(NamedTuple):
    """One micro-step: its shape, its batch's index among the step's samples (from the end), whether it is the last.

    `repeats`: it does the same as the previous one. `again`: how many more times it happens.
    """

    shape: BatchShape
    sample: int
    last: bool
    repeats: bool
    again: int


class Step(NamedTuple):
    """The micro-batches of one step: those `held` individually, and the positions among them that are `trained`.

    `rest_bytes`: held in addition; `again`: how many more times the last but one micro-step happens.
    """

    held: tuple[BatchShape, ...]
    trained: tuple[int, ...]
    rest_bytes: int = 0
    again: int = 0

    def micro_steps(self) -> Iterator[MicroStep]:
        """Yield the trained micro-steps in order."""
        shapes, last = [self.held[position] for position in self.trained], len(self.trained) - 1
        for place, shape in enumerate(shapes):
            again = self.again if place == last - 1 else 0
            sample = self.trained[place] - len(self.held)
            yield MicroStep(shape, sample, place == last, repeats_the_last(shapes, place), again)

    def rest_pieces(self) -> list[int]:
        """Return the sizes of the pieces that hold the rest, as small as possible."""
        piece = max(_PIECE, -(-self.rest_bytes // _MOST_PIECES))
        return [min(piece, self.rest_bytes - start) for start in range(0, self.rest_bytes, piece)]


class Plan:
    """The steps of a run, and its evaluations by the step they follow (0: before the first)."""

    def __init__(
        self,
        micro: Sequence[BatchShape],
        each: int,
        count: int,
        evals: dict[int, list[BatchShape]],
        layers: int,
        emptying: Emptying | None = None,
    ) -> None:
        self.count = count
        self.evals = evals
        self.emptying = emptying or Emptying(None, None, evals)
        self._each = each
        self._different = min(_MOST_DIFFERENT, max(FEWEST_DIFFERENT, _LAYERS_PER_STEP // layers))
        self._micro = micro if len(set(micro)) > 1 else micro[:1]
        self._sums = [0, *accumulate(map(_batch_bytes, self._micro))]
        self._known: dict[int, Step] = {}
        self.said = self._shortened()  # what is not simulated, in sentences

    def step(self, number: int) -> Step:
        """Return the micro-batches of this step, counted from 1; the batches are reused cyclically."""
        offset = (number - 1) * self._each % len(self._micro)
        if offset not in self._known:
            self._known[offset] = self._made(offset)
        return self._known[offset]

    def alike_after(self, number: int) -> int:
        """Return how many steps after this one are the same, without an evaluation in between."""
        following = number
        while following < self.count and self._goes_on(following) and self.kind(following + 1) == self.kind(number):
            following += 1
        return following - number

    def kind(self, number: int) -> tuple[Step, bool]:
        """Return what distinguishes this step from others."""
        return self.step(number), self.emptying.before_backward(number)

    def _goes_on(self, number: int) -> bool:
        return number not in self.evals and not self.emptying.between(number)

    def _shortened(self) -> list[str]:
        step, said = self.step(1), []
        if step.rest_bytes:
            said.append(
                f"gradient_accumulation_steps {self._each:,}: all micro-batches of a step are held in memory; those "
                f"after the first {_HELD_SINGLY:,} are counted together"
            )
        ran = len(step.trained) + step.again
        if ran < self._each:
            said.append(
                f"{ran} of a step's {self._each:,} micro-steps are simulated: the first ones, the widest and the last"
            )
        return said

    def _made(self, offset: int) -> Step:
        micro, each, singly = self._micro, self._each, _HELD_SINGLY
        if each <= singly:
            held = tuple([micro[(offset + i) % len(micro)] for i in range(each)])
            return Step(held, self._trained(held))
        places = range(singly - 2, min(each - 1, singly - 2 + len(micro)))
        widest = max([micro[(offset + i) % len(micro)] for i in places], key=_batch_bytes)
        held = (*[micro[(offset + i) % len(micro)] for i in range(singly - 2)], widest)
        held = (*held, micro[(offset + each - 1) % len(micro)])
        rest = self._bytes_of(offset, each) - sum(map(_batch_bytes, held))
        return Step(held, self._trained(held), rest, each - singly if len(micro) == 1 else 0)

    def _bytes_of(self, offset: int, count: int) -> int:
        """Return the bytes of that many micro-batches from `offset` on, as the allocator rounds them."""
        sums, length = self._sums, len(self._micro)
        rounds, end = divmod(offset + count, length)
        return rounds * sums[-1] + sums[end] - sums[offset]

    def _trained(self, held: tuple[BatchShape, ...]) -> tuple[int, ...]:
        """Return the micro-steps to simulate: all if few differ from the previous one.

        Otherwise the first ones up to a number of differences, the widest and the last.
        """
        differ = [i for i, shape in enumerate(held) if not repeats_the_last(held, i) or i == len(held) - 1]
        if len(differ) <= self._different:
            return tuple(range(len(held)))
        widest = max(range(len(held)), key=lambda i: _batch_bytes(held[i]))
        return tuple(sorted({*range(differ[self._different - 2]), widest, len(held) - 1}))


def repeats_the_last(shapes: Sequence[BatchShape], position: int) -> bool:
    """Whether this micro-step does the same as the previous one: both add to gradients, with the same shape."""
    return position > 1 and shapes[position] == shapes[position - 1]


def _batch_bytes(shape: BatchShape) -> int:
    return _BATCH_TENSORS * (-(-shape.rows * shape.width * INT64.size // _ROUNDED) * _ROUNDED)


class Emptying(NamedTuple):
    """Steps count from 1.

    `within`: every that many steps, before backward. `around`: a callback that collects garbage before each evaluation
    and one step late after it, and every that many steps if positive.
    """

    within: int | None
    around: int | None
    evals: Container[int]

    def before_step(self, step: int) -> bool:
        """Whether the cache is emptied at the start of this step: the first, and the second after an evaluation."""
        return self.around is not None and (step == 1 or step - 2 in self.evals)

    def before_backward(self, step: int) -> bool:
        """Whether it is emptied between forward and backward of this step, in every micro-step."""
        return self.within is not None and (step - 1) % self.within == 0

    def after_step(self, step: int) -> bool:
        """Whether it is emptied at the end of this step, before its evaluation, if any."""
        if self.around is None:
            return False
        return step in self.evals or (self.around > 0 and step % self.around == 0)

    def between(self, step: int) -> bool:
        """Whether the cache is emptied between this step and the next."""
        return self.after_step(step) or self.before_step(step + 1)


def emptying_of(run: RunSpec, evals: Container[int]) -> Emptying:
    """Return what the run's settings say; `evals`: the steps followed by an evaluation."""
    return Emptying(run.allocator.empty_cache_steps, run.allocator.collect_steps, evals)
