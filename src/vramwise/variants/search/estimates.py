"""Variants in the order of their speed, without timing all of them.

A few axes decide how much work there is (how many samples pass at once, what is recomputed or moved); the others each
swap one kernel for another. So every combination of the former is timed, and in each combination every single swap;
what several swaps give together is taken as their sum. Whoever goes through the list times each variant that he comes
to, and goes by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import product

from vramwise.variants.search.book import Key
from vramwise.variants.search.space import Pick, Space, count_changes

# Axes that decide how much work there is: what other choices bring depends on them.
_DECIDING = frozenset(
    {"batches", "checkpointing", "offloading", "method", "length", "sharding", "precision", "padding"}
)
# Up to so many variants each is timed.
FEW = 96
# By how many steps of speed swaps may bring more elsewhere than where they were tried first.
_BEYOND = 5
# (what the option adds to the key, its number)
_Option = tuple[Key, int]
KeyOf = Callable[[Pick], Key | None]


def in_order(space: Space, key_of: KeyOf, base: Pick, dead: Callable[[Pick], bool]) -> Iterator[tuple[Key, Pick]]:
    """Every variant with its key, the best first: exact keys where there are few, else estimates around `base`.

    `dead`: whether nothing with the deciding choices of this variant can be an answer; asked again as long as it goes.
    """
    if space.size <= FEW:
        exact = [(key, pick) for pick in space.picks() if (key := key_of(pick)) is not None]
        yield from sorted(exact)
        return
    yield from _merged(space, key_of, base, dead)


def is_deciding(name: str) -> bool:
    """Whether an axis decides how much work there is."""
    return name in _DECIDING


def deciding(space: Space, pick: Pick, others: Pick) -> Pick:
    """The deciding choices of one variant with the other choices of another."""
    return tuple(
        one if name in _DECIDING else other for name, one, other in zip(space.names, pick, others, strict=True)
    )


def contexts(space: Space, base: Pick) -> Iterator[Pick]:
    """Every combination of deciding choices, all else as in `base`."""
    ranges = [
        range(len(choices) + 1) if name in _DECIDING else (at,)
        for name, choices, at in zip(space.names, space.choices, base, strict=True)
    ]
    return product(*ranges)


def _merged(space: Space, key_of: KeyOf, base: Pick, dead: Callable[[Pick], bool]) -> Iterator[tuple[Key, Pick]]:
    """One stream out of those of all contexts; a context is gone into when its turn may have come."""
    gain = _BEYOND + _most_gained(_options(space, key_of, base))
    waiting: list[tuple[Key, int, Pick, Iterator[tuple[Key, Pick]] | None]] = []
    for context in contexts(space, base):
        key = key_of(context)
        if key is not None:
            heappush(waiting, ((key[0] - gain, 0), len(waiting), context, None))
    count = len(waiting)
    while waiting:
        key, _, pick, stream = heappop(waiting)
        if dead(pick):
            continue
        if stream is None:
            stream = _sums(space, key_of, pick)
        else:
            yield key, pick
        following = next(stream, None)
        if following is not None:
            count += 1
            heappush(waiting, (following[0], count, following[1], stream))


def _options(space: Space, key_of: KeyOf, context: Pick) -> list[list[_Option]]:
    """For each axis that swaps a kernel what each option adds, the best first; deciding axes have one option."""
    here = key_of(context)
    assert here is not None
    found: list[list[_Option]] = []
    for axis, name in enumerate(space.names):
        at = context[axis]
        options = [((0, int(at > 0)), at)]
        if name not in _DECIDING:
            for other in range(len(space.choices[axis]) + 1):
                key = None if other == at else key_of((*context[:axis], other, *context[axis + 1 :]))
                if key is not None:
                    options.append(((key[0] - here[0], int(other > 0)), other))
        found.append(sorted(options))
    return found


def _most_gained(options: Sequence[Sequence[_Option]]) -> int:
    return sum(-each[0][0][0] for each in options)


def _sums(space: Space, key_of: KeyOf, context: Pick) -> Iterator[tuple[Key, Pick]]:
    """Every combination of swaps in a context by the sum of what they add, the smallest first."""
    here = key_of(context)
    assert here is not None
    options = _options(space, key_of, context)

    def entry(indexes: tuple[int, ...], last: int) -> tuple[Key, Pick, tuple[int, ...], int]:
        chosen = [each[index] for each, index in zip(options, indexes, strict=True)]
        pick = tuple(number for _, number in chosen)
        grade = here[0] + sum(added[0] for added, _ in chosen)
        return (grade, count_changes(pick)), pick, indexes, last

    heap = [entry((0,) * len(options), 0)]
    while heap:
        key, pick, indexes, last = heappop(heap)
        yield key, pick
        for axis in range(last, len(options)):
            if indexes[axis] + 1 < len(options[axis]):
                heappush(heap, entry((*indexes[:axis], indexes[axis] + 1, *indexes[axis + 1 :]), axis))
