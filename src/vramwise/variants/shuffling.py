"""The orders in which seeded samplers draw rows: permutations of torch and numpy, computed without them.

transformers passes its seed to accelerate's sampler, which seeds its own generator in each epoch. The order of widths
can therefore be predicted, and it decides how the cache fragments. `permutation` implements the Mersenne twister and
the shuffle as torch has them (ATen: core/MT19937RNGEngine.h, native/TensorFactories.cpp).

`Dataset.shuffle` and `Dataset.train_test_split` with a seed draw from `numpy.random.default_rng(seed)`, so the held-out
samples of a run can be predicted. `numpy_permutation` implements PCG64 and the shuffle as numpy has them
(bit_generator.pyx: SeedSequence; src/pcg64; _generator.pyx: _shuffle_raw; src/distributions: random_interval).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

_SIZE, _MIDDLE = 624, 397
_WORD = 0xFFFFFFFF
_LONG, _STATE = (1 << 64) - 1, (1 << 128) - 1
_POOL = 4
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


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


@lru_cache(maxsize=8)
def numpy_permutation(count: int, seed: int) -> tuple[int, ...]:
    """Return `numpy.random.default_rng(seed).permutation(count)`."""
    order = list(range(count))
    words = _numpy_numbers(seed)
    for place in range(count - 1, 0, -1):
        mask = (1 << place.bit_length()) - 1
        other = next(words) & mask
        while other > place:
            other = next(words) & mask
        order[place], order[other] = order[other], order[place]
    return tuple(order)


def _numpy_numbers(seed: int) -> Iterator[int]:
    """Yield the generator's 32-bit numbers: the lower half of each 64-bit number first."""
    high, low, *stream = _seeded(seed)
    step = ((stream[0] << 64 | stream[1]) << 1 | 1) & _STATE
    state = ((step + (high << 64 | low)) * _MULTIPLIER + step) & _STATE
    while True:
        state = (state * _MULTIPLIER + step) & _STATE
        mixed, turn = (state >> 64) ^ (state & _LONG), state >> 122
        number = (mixed >> turn | mixed << (-turn & 63)) & _LONG
        yield number & _WORD
        yield number >> 32


def _seeded(seed: int) -> list[int]:
    """Return the four 64-bit numbers that numpy's SeedSequence derives from a seed."""
    given = [seed >> shift & _WORD for shift in range(0, max(1, seed.bit_length()), 32)]
    mixing = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [mixing(given[place] if place < len(given) else 0) for place in range(_POOL)]
    for one in range(_POOL):
        for other in range(_POOL):
            if one != other:
                pool[other] = _mixed(pool[other], mixing(pool[one]))
    for more in given[_POOL:]:
        pool = [_mixed(held, mixing(more)) for held in pool]
    ending = _Hash(0x8B51F9DD, 0x58F38DED)
    words = [ending(pool[place % _POOL]) for place in range(2 * _POOL)]
    return [low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)]


class _Hash:
    """A hash whose constant changes with every number."""

    def __init__(self, constant: int, multiplier: int) -> None:
        self.constant, self.multiplier = constant, multiplier

    def __call__(self, number: int) -> int:
        number ^= self.constant
        self.constant = self.constant * self.multiplier & _WORD
        number = number * self.constant & _WORD
        return number ^ number >> 16


def _mixed(one: int, other: int) -> int:
    found = (0xCA01F9DD * one - 0x4973F715 * other) & _WORD
    return found ^ found >> 16
