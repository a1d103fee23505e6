"""The order in which a seeded sampler draws rows: torch's random permutation, computed without torch.

transformers passes its seed to accelerate's sampler, which seeds its own generator in each epoch. The order of widths
can therefore be predicted, and it decides how the cache fragments. This implements the Mersenne twister and the shuffle
as torch has them (ATen: core/MT19937RNGEngine.h, native/TensorFactories.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

_SIZE, _MIDDLE = 624, 397
_WORD = 0xFFFFFFFF


@lru_cache(maxsize=8)
def permutation(count: int, seed: int) -> tuple[int, ...]:
    """Return `torch.randperm(count)` of a CPU generator with this seed."""
    order = list(range(count))
    numbers = _numbers(seed)
    for place in range(count - 1):
        other = place + next(numbers) % (count - place)
        order[place], order[other] = order[other], order[place]
    return tuple(order)


def _numbers(seed: int) -> Iterator[int]:
    """Yield the 32-bit numbers of the Mersenne twister."""
    state = [seed & _WORD]
    for place in range(1, _SIZE):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + place) & _WORD)
    while True:
        for place in range(_SIZE):
            mixed = (state[place] & 0x80000000) | (state[(place + 1) % _SIZE] & 0x7FFFFFFF)
            state[place] = state[(place + _MIDDLE) % _SIZE] ^ (mixed >> 1) ^ (0x9908B0DF if mixed & 1 else 0)
        yield from map(_tempered, state)


def _tempered(word: int) -> int:
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)
