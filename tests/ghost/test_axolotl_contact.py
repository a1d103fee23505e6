"""Runs of the real Axolotl that were drawn by chance: each fourth one, held to what it was predicted to take."""

from statistics import median

import pytest

import axolotl_memory as bench

CONTACT = [
    row for row in bench.rows([bench.RUNS / "axolotl-contact.jsonl"]) if "unfrozen_parameters" not in row["config"]
]
# Which labels come together, and how much of a row is completion, is not in the data: the worst is taken.
BY_CHANCE = ("kto",)


def test_runs_drawn_by_chance_are_predicted():
    errors = []
    for row in CONTACT[::4]:
        if row["config"].get("rl") in BY_CHANCE:
            continue
        guess, truth = bench.predicted(row)[0], bench.measured(row)
        assert guess.reserved == pytest.approx(truth.reserved, rel=0.03), row["name"]
        assert guess.load_reserved == pytest.approx(truth.load_reserved, rel=0.01), row["name"]
        errors.append(abs(guess.reserved / truth.reserved - 1))
    assert len(errors) > 15
    assert median(errors) < 0.0005


def test_patterns_that_match_nothing_train_nothing():
    """Axolotl went on and trained nothing; the prediction says so in a sentence."""
    from vramwise.errors import VramwiseError

    rows = bench.rows([bench.RUNS / "axolotl-contact.jsonl"])
    nothing = [row for row in rows if not any("*" in kind for kind in row["parameters"])]
    assert len(nothing) == 3
    for row in nothing:
        with pytest.raises(VramwiseError, match="nothing would be trained"):
            bench.predicted(row)
