"""Runs drawn by chance for `tests/measured/capped.py`, held to what they are predicted to take with the rows that came."""

import json
from functools import cache
from pathlib import Path

import pytest

import axolotl_memory as axolotl
import capped
import trainer_memory as trainers
import unsloth_memory as unsloth

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


def test_verdicts_are_counted_by_what_came(tmp_path, capsys):
    told = {"a": "fits", "b": "fits", "c": "may_fit", "d": "does_not_fit", "e": "tight"}
    lines = [{"name": name, "limit_mib": 1000, "verdict": {"kind": kind}} for name, kind in told.items()]
    (tmp_path / "first.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "now.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ends = {"a": "ran", "b": "ran with retries", "c": "ran", "d": "ran", "e": "ran with retries"}
    came = [{"name": name, "predicted": "first.jsonl", "came": end} for name, end in ends.items()]
    (tmp_path / "came.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in came))
    capped.verdicts(tmp_path / "first.jsonl", tmp_path / "now.jsonl", tmp_path / "came.jsonl")
    shown = capsys.readouterr().out
    assert "| b | 1,000 | fits | fits | ran with retries |" in shown
    assert (
        "now.jsonl: 5 runs; does_not_fit: wrong 1, fits: right 1, fits: wrong 1, may_fit: left open 1, tight: right 1"
        in shown
    )
