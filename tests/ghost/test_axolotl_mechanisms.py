"""Runs of the real Axolotl that were made to find mechanisms: offloaded checkpoints, mixtures, SimPO, packed Gemma 3."""

import pytest

import axolotl_memory as bench

ROWS = {row["name"]: row for row in bench.rows([bench.RUNS / "axolotl-mechanisms.jsonl"])}
# Four threads read a mixture's matrices: in which order they lie, and so what is reserved, is left to chance.
MIXTURES = tuple(name for name in ROWS if "moe" in name)


@pytest.mark.parametrize("name", ROWS)
def test_what_was_measured_is_predicted(name):
    row = ROWS[name]
    guess, truth = bench.predicted(row)[0], bench.measured(row)
    by_chance = name in MIXTURES
    assert guess.allocated == pytest.approx(truth.allocated, rel=0.001)
    assert guess.reserved == pytest.approx(truth.reserved, rel=0.05 if by_chance else 0.025)
    assert guess.load_reserved == pytest.approx(truth.load_reserved, rel=0.04 if by_chance else 0.002)
