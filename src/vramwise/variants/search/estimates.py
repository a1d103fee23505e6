"""Yields variants in the order of their speed without timing all of them.

A few axes decide how much work there is (batch size, recomputing, offloading); each of the others swaps one kernel for
another. Every combination of the former is timed, and in each combination every single swap; several swaps together are
estimated by their sum. The caller times each variant that it reaches and uses that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from vramwise.variants.search.combinations import Pick, Space, count_changes, is_deciding

# (seconds of a step in steps of 1 %, number of changes): smaller is better.
Key = tuple[int, int]
KeyOf = Callable[[Pick], Key | None]
# By how many speed steps swaps may gain more in other combinations than in the first.
_BEYOND = 5
# (what the option adds to the key, the option)
_Option = tuple[Key, str]


def in_order(space: Space, key_of: KeyOf, base: Pick, dead: Callable[[Pick], bool]) -> Iterator[tuple[Key, Pick]]:
    """Yield every variant with an estimate of its key around `base`, the best first.

    `dead`: whether no variant with the same deciding choices can be an answer; it is asked repeatedly. A combination is
    expanded only when its turn may have come.
    """
    gain = _BEYOND + sum(-options[0][0][0] for options in _options(space, key_of, base))
    waiting: list[tuple[Key, int, Pick, Iterator[tuple[Key, Pick]] | None]] = []
    for context in space.contexts(base):
        key = None if dead(context) else key_of(context)
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
    """Return what each option of an axis adds, the best first; deciding axes have one option."""
    here = key_of(context)
    assert here is not None
    found: list[list[_Option]] = []
    for axis, one in enumerate(space.axes):
        options: list[_Option] = [((0, int(bool(context[axis]))), context[axis])]
        for other in () if is_deciding(one) else space.around(context, axis):
            key = key_of(other)
            if key is not None:
                options.append(((key[0] - here[0], int(bool(other[axis]))), other[axis]))
        found.append(sorted(options))
    return found


def _sums(space: Space, key_of: KeyOf, context: Pick) -> Iterator[tuple[Key, Pick]]:
    """Yield every combination of swaps in a context by the sum of what they add, the smallest first."""
    here = key_of(context)
    assert here is not None
    options = _options(space, key_of, context)
    start = (0,) * len(options)
    heap = [(*_summed(options, start, here[0]), start, 0)]
    while heap:
        key, pick, indexes, last = heappop(heap)
        yield key, pick
        # Each combination is reached in only one way: by advancing on the last axis that was advanced, or on a later
        # one.
        for axis in range(last, len(options)):
            if indexes[axis] + 1 < len(options[axis]):
                further = (*indexes[:axis], indexes[axis] + 1, *indexes[axis + 1 :])
                heappush(heap, (*_summed(options, further, here[0]), further, axis))


def _summed(options: Sequence[Sequence[_Option]], indexes: Sequence[int], grade: int) -> tuple[Key, Pick]:
    chosen = [each[index] for each, index in zip(options, indexes, strict=True)]
    pick = tuple(option for _, option in chosen)
    return (grade + sum(added[0] for added, _ in chosen), count_changes(pick)), pick
