"""The steps of a run by the shapes of their micro-batches, when they empty the cache, and the loop's variables.

A step of thousands of micro-batches holds all of them, but trains only those that differ: repetitions of the previous
shape are counted, and of very many different ones the first, the widest and the last are used.

Parallelism that changes shapes is applied here: tensor parallelism divides heads and feed-forward widths, context
parallelism divides the tokens of a row.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from vramwise.ghost.dtypes import INT64
from vramwise.ghost.loops.batches import BatchShape, Widths, as_shapes, largest
from vramwise.ghost.tape import Storage, Tensor
from vramwise.types import ModelSpec, RunSpec
from vramwise.units import MIB

Batch = dict[str, Tensor]


class LoopState:
    """The micro-batches of a step, their label count, the current batch, its loss, and the gradient norm."""

    def __init__(self) -> None:
        self.samples: list[Batch] = []
        self.items: Tensor | None = None
        self.inputs: Batch | None = None
        self.loss: Tensor | None = None
        self.grad_norm: Tensor | None = None

    def storages(self) -> list[Storage]:
        """Return the storages that the next step will find and replace."""
        tensors = [tensor for batch in self.samples for tensor in batch.values()]
        tensors += [tensor for tensor in (self.items, self.loss, self.grad_norm) if tensor is not None]
        return [tensor.storage for tensor in tensors if tensor.storage is not None]

    def close(self) -> None:
        """Free everything at the end of the loop."""
        self.grad_norm = self.loss = self.inputs = self.items = None
        self.samples = []


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
        while following < self.count and self.kind(following + 1) == self.kind(number):
            if following in self.evals or self.emptying.between(following):
                break
            following += 1
        return following - number

    def kind(self, number: int) -> tuple[Step, bool]:
        """Return what distinguishes this step from others."""
        return self.step(number), self.emptying.before_backward(number)

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
    """Return whether this micro-step does the same as the previous one: both add to gradients, with the same shape."""
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
        """Return whether it is emptied between forward and backward of this step, in every micro-step."""
        return self.within is not None and (step - 1) % self.within == 0

    def after_step(self, step: int) -> bool:
        """Return whether it is emptied at the end of this step, before its evaluation, if any."""
        if self.around is None:
            return False
        return step in self.evals or (self.around > 0 and step % self.around == 0)

    def between(self, step: int) -> bool:
        """Return whether the cache is emptied between this step and the next."""
        return self.after_step(step) or self.before_step(step + 1)


def emptying_of(run: RunSpec, evals: Container[int]) -> Emptying:
    """Return what the run's settings say; `evals`: the steps followed by an evaluation."""
    return Emptying(run.allocator.empty_cache_steps, run.allocator.collect_steps, evals)


# steps until nothing changes: states appear in the first, and the second is the first to run with them
_STEADY_STEPS = 3

# Limit on the batches of all evaluations and of the steps between them, times the model's layers.
_LAYERS_IN_EVALS = 4096
_FEWEST_EVALS = 3


def make_plan(
    run: RunSpec, widths: Widths | None, eval_widths: Widths | None, steps: int | None, layers: int = 1
) -> Plan:
    """Return steps and evaluations; `steps` defaults to what the widths give or the steady state needs."""
    micro = as_shapes(run, widths) or [largest(run)]
    each = run.batch.gradient_accumulation_steps
    count = steps or (max(len(micro) // each, 1) if widths else _STEADY_STEPS)
    context = run.sharding.context_parallel_size
    micro = [_share(shape, context) for shape in micro]
    evals, skipped = _evals(run, eval_widths, count, layers)
    plan = Plan(micro, each, count, evals, layers, emptying_of(run, evals))
    if skipped:
        plan.said.append(f"{skipped:,} of {count:,} steps' evaluations are skipped: they repeat earlier ones")
    return plan


def _share(shape: BatchShape, ranks: int) -> BatchShape:
    return shape if ranks <= 1 else shape._replace(width=max(1, -(-shape.width // ranks)))


def _evals(run: RunSpec, widths: Widths | None, steps: int, layers: int) -> tuple[dict[int, list[BatchShape]], int]:
    """Return the batches of each evaluation by its step, and how many are skipped.

    Of too many, the first ones and the last are kept.
    """
    if not run.evaluation.evaluates or run.evaluation.eval_batch_size is None:
        return {}, 0
    # two batches of the same shape: the second reuses what the first left
    shapes = as_shapes(run, widths, evaluation=True) or [largest(run, evaluation=True)] * 2
    shapes = [_share(shape, run.sharding.context_parallel_size) for shape in shapes]
    every = (
        int(run.evaluation.eval_steps)
        if run.evaluation.eval_steps and 1 <= run.evaluation.eval_steps < steps
        else steps
    )
    most = max(_FEWEST_EVALS, _LAYERS_IN_EVALS // layers // (len(shapes) + FEWEST_DIFFERENT))
    # the trainer evaluates once more when it stops
    before_last = range(every, steps, every)
    found = dict.fromkeys((*before_last[: most - 1], steps), shapes)
    if run.evaluation.eval_on_start:
        found[0] = shapes
    return found, max(0, len(before_last) - most + 1)


def local_model(run: RunSpec, model: ModelSpec) -> ModelSpec:
    """Return the share of one rank in a tensor-parallel group: its heads and feed-forward widths."""
    ranks = run.sharding.tensor_parallel_size
    if ranks <= 1:
        return model
    return replace(
        model,
        num_attention_heads=max(1, model.num_attention_heads // ranks),
        num_key_value_heads=max(1, model.num_key_value_heads // ranks),
        intermediate_size=max(1, model.intermediate_size // ranks),
        moe_intermediate_size=model.moe_intermediate_size // ranks,
        shared_expert_intermediate_size=model.shared_expert_intermediate_size // ranks,
    )
