"""Of all ranks those are looked at that differ: the same weights come out as of all of them."""

import random
from types import SimpleNamespace

import pytest

from vramwise.ghost.sharding.zero_flat import FlatEngine


@pytest.mark.parametrize("seed", range(20))
def test_the_fullest_rank_is_among_those_that_differ(seed):
    rng = random.Random(seed)
    ranks = rng.choice([1, 2, 7, 64])
    groups = [[SimpleNamespace(numel=rng.randint(1, 500)) for _ in range(rng.randint(1, 9))] for _ in range(2)]
    sizes = [-(-sum(parameter.numel for parameter in group) // ranks) for group in groups]
    flat = SimpleNamespace(groups=groups, zero=SimpleNamespace(ranks=ranks))
    flat._reaching = lambda sizes, rank: FlatEngine._reaching(flat, sizes, rank)
    flat._ranks_that_differ = lambda sizes: FlatEngine._ranks_that_differ(flat, sizes)
    found = FlatEngine._owned(flat, sizes)
    flat._ranks_that_differ = lambda sizes: range(ranks)
    assert found == FlatEngine._owned(flat, sizes)
    flat.zero.ranks = 2**40
    assert len(FlatEngine._ranks_that_differ(flat, [1, 1])) < 100
