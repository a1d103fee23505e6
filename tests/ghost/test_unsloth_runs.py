"""Runs of the real Unsloth on a card, held to what they are predicted to take; and its kernels, worked out by hand."""

from functools import cache
from statistics import median

import pytest

import unsloth_memory as bench
from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.offload import unsloth_input_offload_of
from vramwise.ghost.ops.unsloth_losses import (
    chunks_for,
    free_budget,
    nearest_chunks_for,
    rows_at_once,
    tile,
    unsloth_row_loss,
)
from vramwise.ghost.tape import Leaf, Parameter, Tape

RUNS = {row["name"]: row for row in bench.rows([bench.RUNS / "unsloth-dev.jsonl"])}
DRAWN = {
    row["name"]: row for row in bench.rows([bench.RUNS / "unsloth-chance.jsonl", bench.RUNS / "unsloth-drawn.jsonl"])
}
MIB = 1024**2


@cache
def compared(name):
    """What is predicted for a run, and what it took."""
    row = RUNS.get(name) or DRAWN[name]
    return bench.predicted(row), bench.measured(row)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_measured_run_is_predicted(name):
    guess, truth = compared(name)
    assert guess.reserved == pytest.approx(truth.reserved, rel=0.03)
    assert guess.allocated == pytest.approx(truth.allocated, rel=0.002)
    assert guess.load_allocated == pytest.approx(truth.load_allocated, rel=0.001)
    assert guess.load_reserved == pytest.approx(truth.load_reserved, rel=0.001)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_run_drawn_by_chance_is_predicted(name):
    guess, truth = compared(name)
    assert guess.reserved == pytest.approx(truth.reserved, rel=0.05)
    assert guess.load_reserved == pytest.approx(truth.load_reserved, rel=0.015)


@pytest.mark.parametrize("name", ["u05_qlora_qwen3_4b9", "u16_8bit_mistral7b8", "v08_8bit_qwen25_15b"])
def test_tied_copies_and_compiled_layers_are_followed(name):
    guess, truth = compared(name)
    assert guess.allocated == pytest.approx(truth.allocated, rel=0.01)


@pytest.mark.parametrize("name", ["v12_8bit_qwen25_05b", "v17_8bit_tinyllama"])
def test_compiled_lora_under_checkpointing_keeps_no_copies_of_weights(name):
    guess, truth = compared(name)
    assert guess.allocated == pytest.approx(truth.allocated, rel=0.0005)


@pytest.mark.parametrize("name", ["u14_lora16_mistral7b8", "u33_lora16_llama8b8", "v01_lora16_llama3b"])
def test_dropped_inputs_live_until_the_next_projection_drops_its_own(name):
    guess, truth = compared(name)
    assert guess.reserved == pytest.approx(truth.reserved, rel=0.002)


def test_all_together_are_nearly_exact():
    pairs = [compared(name) for name in RUNS]
    assert median(abs(guess.reserved / truth.reserved - 1) for guess, truth in pairs) < 0.001


def test_one_layer_stands_for_all():
    row = RUNS["us_qlora_llama1b_default"]
    shapes = [BatchShape(1, 1024, False, samples=2)] * 4
    widths = [{"input_ids": [1, shape.width], "packed_seq_lengths": [shape.samples]} for shape in shapes]
    short = {**row, "widths": widths, "steps": row["steps"][:1]}
    plain = bench.report_of(short, plainly=True)
    quick = bench.report_of(short)
    assert plain.peak_allocated_bytes == quick.peak_allocated_bytes
    assert plain.peak_reserved_bytes == quick.peak_reserved_bytes


@pytest.mark.parametrize(
    ("rows", "hidden", "words", "taken"),
    [(2756, 4096, 128_256, 512), (4096, 4096, 32_000, 2048), (300, 2048, 128_256, 300), (8192, 4096, 32_000, 2048)],
)
def test_rows_of_logits_at_once(rows, hidden, words, taken):
    assert rows_at_once(rows, hidden, words, 4) == taken


@pytest.mark.parametrize(("rows", "budget", "chunks"), [(4096, 6, 1), (4096, 1, 4), (16_384, 1, 16)])
def test_chunks_before_the_cap_are_the_nearest(rows, budget, chunks):
    assert nearest_chunks_for(rows, 262_144, budget * 1024**3) == chunks


def test_tiles_on_small_cards_are_narrow():
    small = Hardware(capability=(8, 9), memory_bytes=24 * 1024**3)
    assert tile(8192, 128_256, Hardware()) == (4096, 16_384)
    assert tile(1024, 128_256, small) == (1024, 16_384)
    assert tile(1024, 128_256, Hardware()) == (1024, 65_536)


@pytest.mark.parametrize(
    ("rows", "budget", "fixed", "chunks"),
    [(1339, 4, 0.52, 1), (2561, 4, 0.52, 4), (2561, 1, 0, 8), (100, 4, 0, 1)],
)
def test_chunks_by_room(rows, budget, fixed, chunks):
    gib = 1024**3
    assert chunks_for(rows, 151_936, int(budget * gib), int(fixed * gib)) == chunks


def test_the_budget_is_half_of_what_is_free():
    t = Tape(Hardware(memory_bytes=8 * 1024**3))
    kept = t.new((1024, MIB), BF16)  # 2 GiB
    assert free_budget(t) == (8 * 1024**3 - 512 * MIB - 2 * 1024**3) // 2
    del kept


def test_a_frozen_head_s_loss_keeps_one_gradient():
    t = Tape(Hardware())
    hidden = Leaf(None, (1000, 64), 64_000, BF16)
    hidden.require_grad()
    head = Parameter(t, "lm_head", (40_000, 64), BF16, trainable=False)
    loss = unsloth_row_loss(t, hidden, head, 999)
    made = [event[2] for event in t.events if event[0] == 0]
    assert 1000 * 64 * 2 in made  # the gradient of the hidden states
    assert rows_at_once(999, 64, 40_000, FP32.size) * 40_000 * 4 in made
    assert loss.shape == ()


def test_inputs_come_back_into_kept_buffers():
    run = bench.run_of(RUNS["us_qlora_llama1b_default"])
    t = Tape(Hardware())
    x = t.new((1, 2048, 2048), BF16)  # 8 MiB
    first = unsloth_input_offload_of(t, run, first=True)
    (away,) = first.pack((x,), None)
    assert {name: storage.nbytes for name, storage in t.once.items()} == {
        "staging buffer": 8 * MIB,
        "second staging buffer": 2 * MIB,
    }
    second = unsloth_input_offload_of(t, run, first=False)
    second.pack((x,), None)
    assert t.once["second staging buffer"].nbytes == 8 * MIB
    assert t.last_block_keeps
    small = t.new((1, 256, 2048), BF16)  # 1 MiB stays
    assert second.pack((small,), None) == (small,)
    assert away.buffer == "staging buffer"
