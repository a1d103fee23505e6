"""What is a leak: the guard of a run and the reader of its log ask the same function."""

import random

import pytest

from vramwise.recordings.growth import FEWEST, shape, steady_climb
from vramwise.training.guard.watch import Growth
from vramwise.units import GIB, MIB


def leak(count, *, noise_bytes=0, seed=0):
    rng = random.Random(seed)
    return [int(10 * GIB + 200 * MIB * step + rng.gauss(0, noise_bytes)) for step in range(count)]


def one_jump(count):
    return [10 * GIB + (4 * GIB if step > count // 2 else 0) for step in range(count)]


def then_level(count):
    """A buffer that is filled in the first half."""
    return [10 * GIB + 4 * GIB * min(2 * step, count) // count for step in range(count)]


def highest_so_far(count, seed):
    """What a log shows of batches of any length where it has the highest mark."""
    rng = random.Random(seed)
    marks, highest = [], 0
    for _ in range(count):
        highest = max(highest, int(10 * GIB * (1 + abs(rng.gauss(0, 0.15)))))
        marks.append(highest)
    return marks


@pytest.mark.parametrize("count", [FEWEST, 8, 20, 200])
def test_a_leak(count):
    assert shape(leak(count)) == "steady"


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_under_noise(seed):
    assert shape(leak(40, noise_bytes=400 * MIB, seed=seed)) == "steady"


@pytest.mark.parametrize("count", [FEWEST, 8, 20, 200])
@pytest.mark.parametrize("series", [one_jump, then_level])
def test_what_grows_otherwise(series, count):
    assert shape(series(count)) == "jumps"


@pytest.mark.parametrize("seed", range(20))
def test_the_highest_mark_of_uneven_batches_is_no_leak(seed):
    assert shape(highest_so_far(60, seed)) != "steady"


def test_what_does_not_grow():
    assert shape([]) == shape(leak(FEWEST - 1)) == "flat"
    assert shape([10 * GIB] * 20) == "flat"
    assert shape([10 * GIB, *[14 * GIB] * 19]) == "flat"  # the optimizer's state
    assert shape([10 * GIB, 10 * GIB, 14 * GIB, 10 * GIB, 10 * GIB]) == "jumps"


@pytest.mark.parametrize("series", [leak(20), leak(20, noise_bytes=100 * MIB), one_jump(20), then_level(20)])
def test_guard_and_diagnosis_agree(series):
    window = Growth(len(series))
    seen = [window.see(step, size) for step, size in enumerate(series)]
    assert seen[:-1] == [None] * (len(series) - 1)
    assert (seen[-1] is not None) == (shape(series) == "steady")


def test_a_climb_has_its_rate():
    found = steady_climb([(step, 5 * GIB + 3 * MIB * step) for step in range(10, 30)])
    assert round(found.bytes_per_step) == 3 * MIB
    assert (found.steps, found.last_bytes - found.first_bytes) == (19, 57 * MIB)
    assert steady_climb([]) is None
    assert steady_climb([(0, 1), (1, 2)]) is None
