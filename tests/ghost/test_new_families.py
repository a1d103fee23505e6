"""Families that no recorded run had: they run, with and without adapters, and their predictions say so.

What their blocks save was compared with transformers 5.22 on a processor (saved tensors after a forward pass of 256
tokens): the sizes below are what torch kept there, in MiB, without the attention kernel's own differences.
"""

from pathlib import Path

import pytest

from family_cases import all_cases, predicted
from truth import _case
from vramwise.ghost.build import Builder
from vramwise.ghost.dtypes import INT64
from vramwise.ghost.loading import load
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.tape import Tape
from vramwise.models.families import all_families
from vramwise.timeline import Action

CASES = {case["name"]: case for case in all_cases()}
SAVED_MIB = {"qwen3_5": 296.5, "falcon_h1": 402.5, "granite_hybrid": 338.5, "lfm2": 67.9, "lfm2_moe": 87.1}

# What an H200 showed of these cases (torch 2.11, transformers 5.20.1), in MiB: allocated, reserved.
MEASURED_MIB = {
    "deepseek_v2_full": (3226.7, 3384),
    "deepseek_v2_lora_gc": (1416.4, 1656),
    "deepseek_v3_full": (3208.5, 3382),
    "deepseek_v3_lora_gc": (1399.2, 1642),
}


# The same with transformers 5.23.0 (`bench/results/traced_card.md`, fourth set): blocks were corrected after these runs.
CORRECTED_MIB = {
    "gemma3n_full": (4009.3, 4212),
    "gemma3n_lora_gc": (1633.9, 1878),
    "gemma4_full": (3060.1, 3238),
    "gemma4_lora_gc": (1172.4, 1336),
    "jamba_full": (7455.8, 8014),
    "kimi_linear_full": (22690.2, 23994),
    "kimi_linear_lora_gc": (6362.2, 6568),
    "qwen3_5_full": (4344.5, 4530),
    "qwen3_5_lora_gc": (1191.8, 1420),
    "qwen3_next_full": (5160.6, 5328),
    "qwen3_next_lora_gc": (1485.6, 1898),
}


def made(name, **more):
    record = {**CASES[name], **more}
    return _case({"name": name, "case": record}, Path())


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_runs_and_says_that_it_was_not_measured(name):
    case = made(name, sequence_len=128, steps=1)
    timeline, assumed = ghost_run(case.run, case.model, steps=1, hardware=case.hardware)
    assert any(event[0] == int(Action.ALLOC) for event in timeline.events)
    assert any("has not been compared with a measured run" in sentence for sentence in assumed)


@pytest.mark.parametrize("name", sorted(SAVED_MIB))
def test_it_keeps_what_transformers_keeps(name):
    case = made(f"{name}_full", sequence_len=256, micro_batch_size=1)
    t = Tape(case.hardware)
    body = Builder(load(t, case.model, case.run, sharding_of(case.run))).body()
    ids, mask = t.new((1, 256), INT64), t.new((1, 256), INT64)
    start = len(t.events)
    hidden = body(t, ids, mask, False)
    alive = {}
    for action, number, nbytes, _, tag in t.events[start:]:
        if action == int(Action.ALLOC) and t.tags[tag].category != "workspace":
            alive[number] = nbytes
        elif action == int(Action.FREE):
            alive.pop(number, None)
    assert sum(alive.values()) / 2**20 == pytest.approx(SAVED_MIB[name], rel=0.02)
    del hidden


def test_every_family_that_was_not_measured_has_a_case():
    known = {made(name).model.family for name in CASES}
    unmeasured = {family.name for family in all_families() if not family.measured}
    by_processor = {"albert", "distilbert", "roberta"}
    assert unmeasured - known == {"dbrx", "mllama", "mpt", "bloom", "llama-like"} | by_processor  # see test_encoders


@pytest.mark.parametrize("name", sorted(MEASURED_MIB))
def test_it_takes_what_it_took_on_a_card(name):
    """The attention kernel keeps its own result beside the projection's copy; the router a copy of its fp32 input."""
    allocated, reserved = MEASURED_MIB[name]
    foretold = predicted(made(name))
    assert foretold["allocated_mib"] == pytest.approx(allocated, rel=0.001)
    assert foretold["reserved_mib"] == pytest.approx(reserved, rel=0.01)


@pytest.mark.parametrize("name", sorted(CORRECTED_MIB))
def test_it_takes_about_what_it_took_on_a_card(name):
    allocated, reserved = CORRECTED_MIB[name]
    foretold = predicted(made(name, alloc_conf="expandable_segments:True"))
    assert foretold["allocated_mib"] == pytest.approx(allocated, rel=0.015)
    assert foretold["reserved_mib"] == pytest.approx(reserved, rel=0.06)
