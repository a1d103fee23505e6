"""Tiled feed-forward layers: what the real autograd function allocates, and what becomes of a run with them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from truth import BUNDLED, cases
from vramwise.ghost.dtypes import BF16
from vramwise.ghost.engine import backward
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loops.assumptions import assumptions
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.model.linear import Linear
from vramwise.ghost.model.mlp import GatedMlp
from vramwise.ghost.ops.elementwise import scale
from vramwise.ghost.tape import Leaf, Parameter, Storage, Tape
from vramwise.ghost.tiling import TiledMlp
from vramwise.timeline import Action

# Axolotl 0.21's TiledMLP on a CPU, by pieces: a gated layer of 32 × 48 in bf16 over 64 tokens, after `x * 1`; for each
# allocation its bytes, and the bytes that lived before it
RECORDED = json.loads((Path(__file__).parents[1] / "data" / "tiled_mlp.json").read_text("utf-8"))
CASES = {case.name: case for case in cases(BUNDLED)}
FULL, LORA = CASES["full_tinyllama_s1024_b2"], CASES["lora_llama8b_s1024_b1_nogc"]


@pytest.mark.parametrize("pieces", RECORDED)
def test_the_real_function_allocates_the_same(pieces):
    t = Tape(Hardware())
    t.workspace()
    t.in_backward = True
    t.workspace()
    t.in_backward = False
    shapes = {"gate": (48, 32), "up": (48, 32), "down": (32, 48)}
    weights = [Parameter(t, name, shape, BF16, trainable=True) for name, shape in shapes.items()]
    x = Leaf(Storage(t, 64 * 32 * 2), (1, 64, 32), 64 * 32, BF16)
    x.require_grad()
    grad = t.new((1, 64, 32), BF16)
    start = len(t.events)
    layer = TiledMlp(GatedMlp(*[Linear(weight) for weight in weights]), int(pieces), tuple(weights))
    hidden = scale(t, x)
    out = layer(t, hidden)
    t.grad_enabled, t.in_backward = False, True
    backward(t, out.node, grad)
    found, live = [], 0
    for event in t.events[start:]:
        if event.action == Action.ALLOC:
            found.append([event.size_bytes, live])
        live += event.size_bytes if event.action == Action.ALLOC else -event.size_bytes
    assert found == RECORDED[pieces]
    assert all(weight.grad is not None for weight in weights)


def peak_of(run, model, width=1024):
    timeline, _ = ghost_run(run, replace(model, num_hidden_layers=2, vocab_size=512), widths=[width], steps=2)
    live = highest = 0
    for event in timeline.events:
        if event.action == Action.ALLOC:
            live += event.size_bytes
            highest = max(highest, live)
        elif event.action == Action.FREE:
            live -= event.size_bytes
    return highest


def test_more_pieces_take_less():
    run = FULL.run.changed(tiled_mlp=True)
    whole, two, eight = [peak_of(run.changed(tiled_mlp_pieces=pieces), FULL.model) for pieces in (1, 2, 8)]
    assert eight < two < whole
    assert peak_of(run.changed(tiled_mlp_pieces=None), FULL.model) == whole


def test_a_lora_kernel_takes_its_place():
    run = LORA.run.changed(lora_target_linear=True, fused_lora=("mlp",))
    tiled = run.changed(tiled_mlp=True, tiled_mlp_pieces=8)
    assert peak_of(tiled, LORA.model) == peak_of(run, LORA.model)
    assert any("tiled_mlp has no effect" in sentence for sentence in assumptions(tiled, LORA.model, [8], None))
