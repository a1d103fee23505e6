"""Which attention kernel a card gets, what it takes, and what tied heads, dropout and labels do to a run."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.facts.gpus import find_gpu
from vramwise.ghost.dtypes import BF16, FP16, FP32
from vramwise.ghost.hardware import Hardware, hardware_of
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.model.liger import LigerNorm
from vramwise.ghost.ops.attention import kernel_of
from vramwise.ghost.ops.flash import flash_attention, kernel_for, workspace_bytes
from vramwise.ghost.ops.liger import rotate_in_place
from vramwise.ghost.ops.unsloth_segments import attention_of_rows
from vramwise.ghost.tape import Parameter, Tape
from vramwise.timeline import Action

LORA = next(case for case in cases(BUNDLED) if case.name == "lora_llama8b_s1024_b1_nogc")
MODEL = replace(LORA.model, num_hidden_layers=2)
MIB = 1024**2


def chosen(card, *, dtype=BF16, heads=8, kv=8, width=64, masked=False, torch=(2, 11)):
    hardware = hardware_of(find_gpu(card), torch)
    t = Tape(hardware)
    q, k = t.new((1, heads, 128, width), dtype), t.new((1, kv, 128, width), dtype)
    return kernel_of(hardware, q, k, masked=masked)


@pytest.mark.parametrize(
    ("card", "how", "kernel"),
    [
        ("h200", {}, "cudnn"),
        ("h200", {"masked": True}, "cudnn"),
        ("h200", {"torch": (2, 8)}, "flash"),
        ("b200", {}, "cudnn"),
        ("a100", {}, "flash"),
        ("rtx-4090", {"kv": 2}, "flash"),
        ("rtx-4090", {"masked": True}, "efficient"),
        ("rtx-3090", {"dtype": FP32}, "efficient"),
        ("rtx-3090", {"dtype": FP32, "kv": 2}, "math"),
        ("t4", {"dtype": FP16}, "efficient"),
        ("t4", {"dtype": FP16, "kv": 2}, "math"),
        ("t4", {"dtype": BF16}, "math"),
        ("a100", {"width": 512}, "efficient"),
    ],
)
def test_the_kernel_that_attention_gets(card, how, kernel):
    assert chosen(card, **how) == kernel


def test_the_staging_area_of_memory_efficient_attention_as_recorded():
    """2 × 32 heads of 64 over 1,024 tokens: 16 tiles of 64 × 64 numbers and 16 bytes a head; 16.016 MiB were asked."""
    t = Tape(Hardware())
    q = t.new((2, 32, 1024, 64), BF16)
    assert workspace_bytes(q, q, t.hardware) == 2 * 32 * 16 * (64 * 64 * 4 + 16)


def test_desktop_cards_stage_keys_and_values_of_wide_heads_too():
    desktop = hardware_of(find_gpu("rtx-4090"), (2, 11))
    assert kernel_for(128, half=True, hardware=Hardware()).in_registers
    assert not kernel_for(128, half=True, hardware=desktop).in_registers
    assert kernel_for(96, half=True, hardware=desktop).in_registers


def run_of(**changes):
    return ghost_run(LORA.run.changed(**changes), MODEL, gpu=H200)[0]


def bytes_of(timeline, category, phase="load"):
    """Bytes asked for in a phase, by category."""
    inside, total = False, 0
    for event in timeline.events:
        if event.action == Action.PHASE:
            inside = timeline.phases[event.tag].name == phase
        elif inside and event.action == Action.ALLOC and timeline.tags[event.tag].category == category:
            total += event.size_bytes
    return total


@pytest.mark.parametrize(("saved", "copies"), [((), 0), (("lm_head",), 1), (("embed_tokens", "lm_head"), 2)])
@pytest.mark.parametrize("tied", [True, False])
def test_each_saved_module_gets_a_trainable_copy_of_its_own_tied_or_not(saved, copies, tied):
    model = replace(MODEL, tie_word_embeddings=tied)
    run = LORA.run.changed(recompute=True, lora_modules_to_save=saved)
    plain = ghost_run(run.changed(lora_modules_to_save=()), model, gpu=H200)[0]
    timeline = ghost_run(run, model, gpu=H200)[0]
    table = model.vocab_size * model.hidden_size * 2
    assert bytes_of(timeline, "weights") - bytes_of(plain, "weights") == copies * table
    states = bytes_of(timeline, "optimizer", "optimizer") - bytes_of(plain, "optimizer", "optimizer")
    assert 2 * copies * table <= states <= 2 * copies * table + 64


def test_everything_of_the_loss_is_logits():
    timeline = unroll(run_of())
    fp32 = 1024 * MODEL.vocab_size * 4
    large = [event for event in timeline.events if event.action == Action.ALLOC and event.size_bytes == fp32]
    assert len(large) >= 5 * 3  # for the loss, log-softmax, two gradients, and accelerate's copy, each step
    assert {timeline.tags[event.tag].category for event in large} == {"logits"}


def test_gradients_on_their_way_are_labelled_after_the_layer():
    labels = {tag.label for tag in run_of().tags if tag.category == "temporary"}
    assert {"layers.0: attention: backward", "layers.1: mlp: backward"} <= labels


@pytest.mark.parametrize("family", ["starcoder2", "phi", "gpt2", "gpt_neox"])
def test_dropout_of_a_models_own_config_keeps_masks(family):
    from made_up_runs import small_model

    plain = replace(small_model(family), hidden_dropout=0.0, embedding_dropout=0.0)
    dropping = replace(plain, hidden_dropout=0.1)
    run = LORA.run.changed(sequence_len=256, lora_target_linear=True)
    without = ghost_run(run, plain, gpu=H200)[0]
    assert len(ghost_run(run, dropping, gpu=H200)[0].events) > len(without.events)
    evaluated = run.changed(evaluates=True, eval_batch_size=1)
    figures = [bytes_of(ghost_run(evaluated, model, gpu=H200)[0], "activations", "eval") for model in (plain, dropping)]
    assert figures[0] == figures[1]


@pytest.mark.parametrize(("heads", "copies"), [(4, 1), (1, 0)])
def test_ligers_norm_copies_heads_that_lie_in_the_order_of_tokens(heads, copies):
    """Gemma 3 norms heads after the split: the kernel's wrapper makes them contiguous, and the rotation turns back."""
    t = Tape(Hardware())
    norm = LigerNorm(Parameter(t, "norm", (16,), BF16, trainable=False), in_place=False)
    query, tables = t.new((2, heads, 64, 16), BF16), t.new((1, 64, 16), BF16)
    start = len(t.events)
    normed = norm.over_heads(t, query)
    turned, _ = rotate_in_place(t, normed, normed, tables, tables)
    made = [event.size_bytes for event in t.events[start:] if event.action == Action.ALLOC]
    assert made.count(query.numel * 2) == 1 + 3 * copies  # what comes in, twice what is turned
    assert not turned.heads_first


@pytest.mark.parametrize(
    ("rows", "heads", "width", "partial"),
    [
        (4, 4, 256, 2),  # 128 blocks of queries for 264 places: two parts each
        (1, 4, 64, 2),  # 32 of them, but 512 keys are only two parts of 256
        (8, 32, 128, 0),
    ],
)
def test_flash_attention_shares_out_the_keys_of_few_rows(rows, heads, width, partial):
    t = Tape(Hardware())
    q, k, v = (t.new((rows, heads, 512, width), BF16) for _ in range(3))
    before = len(t.events)
    flash_attention(t, q, k, v)
    asked = [event[2] for event in t.events[before:] if event[0] == Action.ALLOC]
    assert asked.count(partial * rows * heads * 512 * width * 4) == (1 if partial else 0)
    before = len(t.events)
    flash_attention(t, q, k, v, sequences=rows)
    assert len([event for event in t.events[before:] if event[0] == Action.ALLOC]) == 4


@pytest.mark.parametrize(("tokens", "padded"), [(512, 640), (500, 512)])
def test_rows_are_padded_for_cudnn_and_cut_again(tokens, padded):
    """To a multiple of 128, by at least one: queries, grouped keys and values are copied, the result is a view."""
    t = Tape(Hardware())
    q, k, v = (t.new((2, heads, tokens, 64), BF16) for heads in (8, 2, 2))
    before = len(t.events)
    out = attention_of_rows(t, q, k, v)
    asked = [event[2] for event in t.events[before:] if event[0] == Action.ALLOC]
    assert asked[:3] == [2 * heads * padded * 64 * 2 for heads in (8, 2, 2)]
    assert asked.count(2 * 8 * padded * 64 * 2) == 2  # the padded queries and the result
    assert (out.shape, out.view) == (q.shape, True)


def test_rows_stay_as_they_are_for_other_kernels():
    t = Tape(hardware_of(find_gpu("a100-40gb"), (2, 11)))
    q, k, v = (t.new((2, heads, 512, 64), BF16) for heads in (8, 2, 2))
    before = len(t.events)
    attention_of_rows(t, q, k, v)
    asked = [event[2] for event in t.events[before:] if event[0] == Action.ALLOC]
    assert 2 * 8 * 640 * 64 * 2 not in asked
