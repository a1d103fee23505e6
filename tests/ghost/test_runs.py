"""Properties that hold for any run: what saves memory saves memory, nothing leaks, counted steps are exact."""

import math
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.ghost.loops.batches import BatchShape, from_lengths, largest
from vramwise.ghost.loops.sft import ghost_run
from vramwise.models.parameters import parameters
from vramwise.timeline import Action, Timeline

CASES = {case.name: case for case in cases(BUNDLED)}
FULL = CASES["full_tinyllama_s1024_b2"]
LORA = CASES["lora_llama8b_s1024_b1_nogc"]
SMALL = replace(LORA.model, num_hidden_layers=3)


def ghost(run, model=SMALL, **options) -> Timeline:
    return unroll(ghost_run(run, model, gpu=H200, **options)[0])


def levels(timeline: Timeline) -> list[int]:
    level, found = 0, []
    for event in timeline.events:
        if event.action == Action.ALLOC:
            level += event.size_bytes
        elif event.action == Action.FREE:
            level -= event.size_bytes
        found.append(level)
    return found


def loaded(timeline: Timeline) -> int:
    """Where the first step begins."""
    return next(
        index
        for index, event in enumerate(timeline.events)
        if event.action == Action.PHASE and timeline.phases[event.tag].step == 1
    )


@cache
def peak(**changes) -> int:
    timeline = ghost(LORA.run.changed(**changes))
    return max(levels(timeline)[loaded(timeline) :])


def test_every_free_has_an_allocation_and_happens_once():
    live = set()
    for event in ghost(LORA.run).events:
        if event.action == Action.ALLOC:
            assert event.tensor not in live
            live.add(event.tensor)
        elif event.action == Action.FREE:
            live.remove(event.tensor)


def test_nothing_leaks_from_step_to_step():
    timeline = ghost(LORA.run, steps=5)
    found = levels(timeline)
    starts = {}
    for index, event in enumerate(timeline.events):
        if event.action == Action.PHASE:
            starts.setdefault(timeline.phases[event.tag].step, found[index])
    assert len({starts[step] for step in (3, 4, 5)}) == 1


def test_the_phases_of_a_step():
    timeline = ghost(LORA.run, steps=3)
    assert [phase.name for phase in timeline.phases if phase.step == 3] == [
        "forward",
        "forward",
        "loss",
        "backward",
        "clip",
        "optimizer",
    ]


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ({"gradient_checkpointing": True, "recompute": True}, {}),
        ({"recompute": True, "checkpointing_reentrant": False}, {}),
        ({"quantization": "4bit", "adapter": "qlora"}, {"quantization": "8bit"}),
        ({"quantization": "8bit"}, {}),
        ({}, {"use_dora": True}),
        ({}, {"lora_dropout": 0.05}),
        ({}, {"adapter": None}),
        ({}, {"lora_r": 64}),
        ({}, {"micro_batch_size": 2}),
        ({"loss_kernel": "liger_fused_linear"}, {}),
        ({"loss_kernel": "cut"}, {"loss_kernel": "liger"}),
        ({"loss_kernel": "liger"}, {}),
        ({}, {"attn_implementation": "eager"}),
        ({"adapter": None, "optimizer": "adamw_bnb_8bit"}, {"adapter": None}),
        ({"adapter": None, "optimizer": "paged_adamw_8bit"}, {"adapter": None, "optimizer": "adamw_bnb_8bit"}),
        ({"adapter": None}, {"adapter": None, "optimizer": "adamw_torch"}),
        ({"adapter": None, "optimizer": "adafactor"}, {"adapter": None, "optimizer": "adamw_torch"}),
        ({"adapter": None, "sharding": "fsdp2", "data_parallel": 4, "gpus": 4}, {"adapter": None}),
        (
            {"adapter": None, "sharding": "zero3", "data_parallel": 4, "gpus": 4},
            {"adapter": None, "sharding": "zero2", "data_parallel": 4, "gpus": 4},
        ),
        (
            {"adapter": None, "sharding": "zero2", "data_parallel": 4, "gpus": 4},
            {"adapter": None, "sharding": "zero1", "data_parallel": 4, "gpus": 4},
        ),
        (
            {"adapter": None, "sharding": "zero3", "data_parallel": 4, "gpus": 4, "offload_optimizer": True},
            {"adapter": None, "sharding": "zero3", "data_parallel": 4, "gpus": 4},
        ),
        ({"adapter": None}, {"adapter": None, "sharding": "ddp", "data_parallel": 2, "gpus": 2}),
        ({"tensor_parallel_size": 2}, {}),
        ({"activation_offloading": "stream"}, {}),
        ({"layer_offloading": True}, {}),
        ({"context_parallel_size": 2}, {}),
    ],
)
def test_what_saves_memory_saves_memory(smaller, larger):
    assert peak(**smaller) < peak(**larger)


@pytest.mark.parametrize(("bits", "held_bytes", "opened_bytes"), [("4bit", 0.5, 2), ("8bit", 1, 4)])
def test_quantised_experts_are_opened_layer_by_layer(bits, held_bytes, opened_bytes):
    """Recomputed blocks open theirs one after the other; without that, each layer's stay open for its backward."""
    moe = CASES["lora_olmoe_s1024_b2_gc_attn"]
    experts = sum(parameter.numel for parameter in parameters(moe.model) if ".experts." in parameter.name)
    opened = experts * opened_bytes / moe.model.num_hidden_layers
    for recompute, least, most in ((True, 0, 1.5), (False, 0.9 * moe.model.num_hidden_layers, math.inf)):
        run = moe.run.changed(recompute=recompute)
        packed, plain = (ghost(run.changed(expert_quantization=kind), moe.model) for kind in (bits, None))
        saved = levels(plain)[loaded(plain)] - levels(packed)[loaded(packed)]
        assert 0.97 < saved / (experts * (2 - held_bytes)) < 1  # scales take the rest
        more = max(levels(packed)[loaded(packed) :]) + saved - max(levels(plain)[loaded(plain) :])
        assert least * opened < more < most * opened


def test_ranks_that_share_a_sequence_shard_the_weights_too():
    sharded = {"adapter": None, "sharding": "fsdp2", "gpus": 4}
    apart = ghost(LORA.run.changed(**sharded, data_parallel=4))
    together = ghost(LORA.run.changed(**sharded, data_parallel=2, context_parallel_size=2))
    assert held(apart) == held(together) < held(ghost(LORA.run.changed(adapter=None)))


def held(timeline: Timeline) -> int:
    """Bytes that are there when the model is loaded, and its shards are cut."""
    return levels(timeline)[loaded(timeline)]


def test_without_data_the_largest_batch_is_assumed_and_said():
    _, said = ghost_run(LORA.run, SMALL, gpu=H200)
    assert any("1 × 1024 tokens" in sentence for sentence in said)


def test_batches_from_lengths():
    run = LORA.run.changed(micro_batch_size=2, constant_shapes=False, pad_to_sequence_len=False, pad_multiple=64)
    assert from_lengths(run, [100, 200, 64, 64, 5000]) == [
        BatchShape(2, 256, True),
        BatchShape(2, 64, False),
        BatchShape(1, 1024, False),
    ]
    packed = run.changed(sample_packing=True, packing_rows="one")
    assert largest(packed) == BatchShape(1, 2048, False)


def test_fp32_embeddings_take_their_bytes():
    model = replace(FULL.model, num_hidden_layers=2)
    wide, _ = ghost_run(FULL.run.changed(fp32_embeddings=True), model, gpu=H200)
    plain, _ = ghost_run(FULL.run.changed(fp32_embeddings=False), model, gpu=H200)
    assert max(levels(plain)) < max(levels(wide))


def test_neither_torch_nor_files_are_needed():
    source = Path(__file__).resolve().parents[2] / "src"
    code = "import sys, vramwise.ghost.loops.sft; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False False"
