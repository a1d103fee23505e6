"""Runs drawn by chance for `bench/capped.py`, held to what they are predicted to take with the rows that came."""

import json
import sys
from functools import cache
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "card")]

import axolotl  # noqa: E402
import capped  # noqa: E402
import trainers  # noqa: E402
import unsloth  # noqa: E402

FILE = Path(__file__).parents[1] / "data" / "truth" / "capped.jsonl"
RUNS = {row["name"]: row for row in map(json.loads, FILE.read_text().splitlines())}
# In random weights, the outliers of an 8-bit base are left to chance.
BY_CHANCE = 0.04


@cache
def figures(name):
    """What is predicted of a run, and what it took."""
    row = RUNS[name]
    if row["trainer"] == "trl":
        trainers.VERSIONS["trl-capped"] = capped.STACKS["trl"][:2] + capped.BESIDE[1:2] + capped.BESIDE[3:]
        return trainers.predicted({**row, "site": "trl-capped"})[0], trainers.measured(row)
    bench = axolotl if row["trainer"] == "axolotl" else unsloth
    guess = bench.predicted(row)
    return guess if bench is unsloth else guess[0], bench.measured(row)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_drawn_run_is_predicted(name):
    guess, truth = figures(name)
    off = BY_CHANCE if "8bit" in name else 0.005
    assert guess.reserved == pytest.approx(truth.reserved, rel=off)
    assert guess.allocated == pytest.approx(truth.allocated, rel=min(off, 0.032) if "8bit" in name else 0.001)


def test_a_run_that_died_has_no_peak():
    row = {"rc": 1, "steps": [[1.0, 2.0, 3.0, 1.0]]}
    assert capped.measured(row) == {"reserved_mib": None}
    done = {"rc": 0, "steps": [[1.0, 2.0, 3.0, 1.0]] * capped.STEPS, "load_peak_reserved_mib": 2.5}
    assert capped.measured(done) == {"load_reserved_mib": 2.5, "allocated_mib": 1.0, "reserved_mib": 3.0}
