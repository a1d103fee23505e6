"""First-fit-decreasing, against the plain algorithm and its bounds. No torch needed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly import examples
from vramwise.errors import VramwiseError
from vramwise.training.worker.packing import pack

lengths = st.lists(st.integers(1, 50), max_size=60)


def plain_first_fit(sizes, capacity):
    bins = []
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        for held in bins:
            if sum(sizes[n] for n in held) + sizes[number] <= capacity:
                held.append(number)
                break
        else:
            bins.append([number])
    return bins


@given(lengths)
@settings(max_examples=examples(150), deadline=None)
def test_is_first_fit_decreasing(sizes):
    assert pack(sizes, 50) == plain_first_fit(sizes, 50)


@given(lengths)
@settings(max_examples=examples(100), deadline=None)
def test_every_sample_once_and_no_row_too_long(sizes):
    bins = pack(sizes, 50)
    assert sorted(number for held in bins for number in held) == list(range(len(sizes)))
    assert all(sum(sizes[number] for number in held) <= 50 for held in bins)


def test_a_sample_longer_than_a_row_is_an_error():
    with pytest.raises(VramwiseError, match="51 tokens"):
        pack([3, 51], 50)


def test_many_samples_are_packed_quickly_and_tightly():
    sizes = [1 + (number * 7919) % 1500 for number in range(50_000)]
    bins = pack(sizes, 2048)
    assert len(bins) <= sum(sizes) / 2048 * 1.02 + 1
