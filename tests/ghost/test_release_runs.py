"""Runs of older and newer releases on one H200: every minor of TRL from 1.9 to 1.16, Axolotl 0.18, 0.20 and 0.21."""

import json

import pytest

import axolotl_memory as axolotl
import trainer_memory as trainers

AXOLOTL = {row["name"]: row for row in axolotl.rows([axolotl.RUNS / "axolotl-releases.jsonl"])}
TRL = {
    row["name"]: row for row in map(json.loads, (trainers.RUNS / "trainers-releases.jsonl").read_text().splitlines())
}
# Four threads read a mixture's matrices: in which order they lie, and so what is reserved, is left to chance.
# GLM 4.7 Flash: its rotation of even and odd columns is taken to be the older one.
WIDER = {name: 0.05 for name in AXOLOTL if "moe" in name} | {"p3_published_glm47_flash6": 0.04}
# Random weights: how many columns hold outliers is left to chance. KTO: which tokens are trained on is not in the data.
ALLOCATED = {"n07_lora8bit_llama1b@21": 0.02, "n17_kto_llama1b@21": 0.011, "p3_published_glm47_flash6": 0.013}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", AXOLOTL)
def test_axolotl_is_predicted_as_measured(name):
    row = AXOLOTL[name]
    guess, truth = axolotl.predicted(row)[0], axolotl.measured(row)
    assert guess.allocated == pytest.approx(truth.allocated, rel=ALLOCATED.get(name, 0.001))
    assert guess.reserved == pytest.approx(truth.reserved, rel=WIDER.get(name, 0.02))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", TRL)
def test_trl_is_predicted_as_measured(name):
    entry = trainers.entry_of(TRL[name])
    assert abs(entry.allocated) < 0.001
    assert abs(entry.reserved) < 0.02
    assert entry.load == pytest.approx(0, abs=0.0001)


def test_a_squared_relu_between_two_adapters_is_one_kernel_since_020():
    """AFM 4.5B on Axolotl 0.21: the two projections and what is between them stay in half precision."""
    row = AXOLOTL["p2_published_afm_4b"]
    assert axolotl.predicted(row)[0].allocated == pytest.approx(axolotl.measured(row).allocated, rel=0.0001)
    older = axolotl.predicted({**row, "axolotl": "0.18.0"})[0]
    assert older.allocated > 1.15 * axolotl.measured(row).allocated


def test_an_8bit_base_at_full_size():
    """All layers of Llama 3 8B: what non-reentrant checkpointing keeps, 0.21's default, and what it takes without."""
    kept, dropped = (AXOLOTL[name] for name in ("f3_lora8b_8bit_outliers", "f4_lora8b_8bit_outliers_reentrant"))
    for row in (kept, dropped):
        guess, truth = axolotl.predicted(row)[0], axolotl.measured(row)
        assert guess.reserved == pytest.approx(truth.reserved, rel=0.01)
    assert axolotl.measured(kept).reserved > axolotl.measured(dropped).reserved + 13_000
