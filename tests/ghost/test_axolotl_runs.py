"""Recorded runs of the real Axolotl, each predicted as a user would, for what it does beside the plain Trainer."""

from functools import cache

import pytest

import axolotl_memory as axolotl

ROWS = {(row["name"], row["axolotl"]): row for row in axolotl.rows([])}


@cache
def errors(name: str, version: str) -> tuple[float, float]:
    """Predicted against measured, allocated and reserved."""
    row = ROWS[name, version]
    guess, truth = axolotl.predicted(row)[0], axolotl.measured(row)
    return guess.allocated / truth.allocated - 1, guess.reserved / truth.reserved - 1


EXACT = [
    ("full_llama1b_chunked_ce_gc", "0.19.0"),
    ("full_llama1b_chunked_ce_gc", "0.21.0"),
    ("full_llama1b_unfrozen", "0.19.0"),
    ("full_qwen05_pack_fa2_gc", "0.19.0"),
]


@pytest.mark.parametrize(("name", "version"), EXACT)
def test_exact(name, version):
    allocated, reserved = errors(name, version)
    assert abs(allocated) < 0.0001
    assert abs(reserved) < 0.0001


def test_8bit_outliers_stay_in_the_graph():
    """Non-reentrant checkpointing keeps what a product's context holds: its input and the copy of the outliers."""
    allocated, reserved = errors("lora8bit_mistral7b8_pack_fa2_gc", "0.21.0")
    assert abs(allocated) < 0.001
    assert abs(reserved) < 0.02


@pytest.mark.parametrize("name", ["lora_llama1b_act_offload", "lora_mistral7b8_gc_offload"])
def test_offloading_beside_reentrant_checkpointing(name):
    """What the second stream's pool reserves varies a little from step to step."""
    allocated, reserved = errors(name, "0.19.0")
    assert abs(allocated) < 0.0001
    assert abs(reserved) < 0.015


def test_evaluation_on_the_default_allocator():
    allocated, reserved = errors("lora_llama1b_eval8_default_alloc", "0.19.0")
    assert abs(allocated) < 0.0001
    assert abs(reserved) < 0.01
