"""Recorded runs of preference and reward training, predicted as a user would."""

import pytest

import axolotl_memory as bench

KINDS = ("dpo", "ipo", "orpo", "simpo", "reward", "grpo")
ROWS = [row for row in bench.rows([]) if row["name"].startswith(KINDS)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("row", ROWS, ids=[f"{row['name']} {row['axolotl']}" for row in ROWS])
def test_training_is_predicted_within_a_percent(row):
    guess, truth = bench.predicted(row)[0], bench.measured(row)
    assert guess.allocated == pytest.approx(truth.allocated, rel=0.01)
    assert guess.reserved == pytest.approx(truth.reserved, rel=0.01)


KTO = [row for row in bench.rows([]) if row["name"].startswith("kto")]


@pytest.mark.parametrize("row", KTO, ids=[f"{row['name']} {row['axolotl']}" for row in KTO])
def test_kto_is_predicted_for_its_worst_batch(row):
    # its log copies the logits of completions: how long those are, and how labels fall, is chance
    guess, truth = bench.predicted(row)[0], bench.measured(row)
    assert truth.allocated < guess.allocated < 1.10 * truth.allocated
