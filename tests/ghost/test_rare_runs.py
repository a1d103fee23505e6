"""Runs with rarer options, drawn by chance: Axolotl 0.21, TRL 1.16 and LLaMA-Factory 0.9.5 on one H200."""

import json

import pytest

import axolotl_memory as axolotl
import trainer_memory as trainers

AXOLOTL = {row["name"]: row for row in axolotl.rows([axolotl.RUNS / "axolotl-rare.jsonl"])}
OTHERS = {row["name"]: row for row in map(json.loads, (trainers.RUNS / "trainers-rare.jsonl").read_text().splitlines())}
# KTO: the worst case of labels and completions is predicted. Random weights: how many columns hold outliers is left to
# chance. GLM 4.7 Flash: its rotation is taken to be the older one. Others: `bench/results/axolotl_memory.md`.
ALLOCATED = dict.fromkeys((name for name in AXOLOTL if "kto" in name), 0.06)
ALLOCATED |= dict.fromkeys((name for name in AXOLOTL if "8bit" in name or "latent" in name), 0.01)
RESERVED = dict.fromkeys((name for name in AXOLOTL if "kto" in name or "hidden_states" in name), 0.06)
RESERVED |= dict.fromkeys((name for name in AXOLOTL if "8bit" in name), 0.04)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", AXOLOTL)
def test_axolotl_is_predicted_as_measured(name):
    row = AXOLOTL[name]
    guess, truth = axolotl.predicted(row)[0], axolotl.measured(row)
    assert guess.allocated == pytest.approx(truth.allocated, rel=ALLOCATED.get(name, 0.001))
    assert guess.reserved == pytest.approx(truth.reserved, rel=RESERVED.get(name, 0.02))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OTHERS)
def test_trl_and_llamafactory_are_predicted_as_measured(name):
    entry = trainers.entry_of(OTHERS[name])
    assert abs(entry.allocated) < (0.02 if OTHERS[name]["config"].get("use_badam") else 0.005)
    # two runs of that 8-bit base reserved 65,442 and 74,938 MiB: which columns hold outliers is left to chance
    assert abs(entry.reserved) < (0.15 if name == "llamafactory111807_sft_lora_qwen25_05b" else 0.03)


def test_masks_of_packed_rows_are_made_from_positions():
    """Gemma 3 under SDPA, 2 × 4096 tokens: without the two tensors of the mask's size it was 11 % too low."""
    row = AXOLOTL["o25_gemma3_pack_sdpa_gemma3_1b"]
    assert axolotl.predicted(row)[0].reserved == axolotl.measured(row).reserved


def test_autocasts_copies_of_weights_stay_under_offloading():
    row = OTHERS["trl111809_sft_lora_qwen25_05b"]
    assert trainers.entry_of(row).allocated == pytest.approx(0, abs=0.002)
