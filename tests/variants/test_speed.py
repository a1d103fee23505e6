"""The time of a step: what is listed, what it is extrapolated from, and what is said of it."""

from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from opened import make_target, subject_of_text
from vramwise.facts.gpus import find_gpu
from vramwise.facts.rates import efficiency, rates_of
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.kinds import begin
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.loops.steps import make_plan
from vramwise.ghost.work import WorkTape
from vramwise.variants.lower_bounds import lower_bound_bytes
from vramwise.variants.speed import no_speed, speed_of
from vramwise.variants.speed.depth import shallow
from vramwise.variants.speed.step import timed
from vramwise.variants.speed.timed_step import list_step

BASE = """
base_model: {model}
datasets: [{{path: x, type: alpaca}}]
sequence_len: 1024
micro_batch_size: {micro}
gradient_accumulation_steps: {each}
optimizer: adamw_torch_fused
learning_rate: 1e-4
bf16: true
"""
LORA = "adapter: lora\nlora_r: 16\nlora_alpha: 16\nlora_target_linear: true\n"
QLORA = LORA.replace("lora\n", "qlora\n", 1) + "load_in_4bit: true\n"
CHECKPOINTED = "gradient_checkpointing: true\n"


def subject(extra="", *, model="meta-llama/Llama-3.2-1B", micro=1, each=1, gpu="h200"):
    text = BASE.format(model=model, micro=micro, each=each) + extra
    return subject_of_text(text, make_target(gpu=gpu))


def speed(extra="", **words):
    opened = subject(extra, **words)
    return speed_of(opened.run, opened.model)


def totals(work):
    """Operations and bytes of a step."""
    kernels = [
        (kernel, stretch.times)
        for stretches in (*work.micro_steps, work.update)
        for stretch in stretches
        for kernel in stretch.kernels
        if kernel.count
    ]
    flops = sum(kernel.flops * times for kernel, times in kernels)
    return flops, sum((kernel.read + kernel.written) * times for kernel, times in kernels)


def whole_depth(run, model, shape, monkeypatch):
    """The same listed at full depth."""
    from vramwise.variants.speed import depth, timed_step

    monkeypatch.setattr(timed_step, "shallow", lambda run, model: depth._whole(model))
    timed_step._listed.cache_clear()
    found = list_step(run, model, shape)
    monkeypatch.undo()
    timed_step._listed.cache_clear()
    return found


@pytest.mark.parametrize(
    ("extra", "model"),
    [
        (CHECKPOINTED, "meta-llama/Llama-3.2-1B"),
        (LORA, "meta-llama/Llama-3.2-1B"),
        (QLORA + CHECKPOINTED, "Qwen/Qwen2.5-0.5B"),
        (LORA, "google/gemma-3-1b-it"),
    ],
)
def test_few_layers_list_the_work_of_all(extra, model, monkeypatch):
    opened = subject(extra, model=model, each=2)
    shape = BatchShape(1, 512, False)
    few = totals(list_step(opened.run, opened.model, shape))
    assert few == pytest.approx(totals(whole_depth(opened.run, opened.model, shape, monkeypatch)), rel=1e-3)
    assert shallow(opened.run, opened.model).model.num_hidden_layers < opened.model.num_hidden_layers


def test_a_full_fine_tune_does_six_operations_a_weight_and_token():
    opened = subject()
    flops, _ = totals(list_step(opened.run, opened.model, BatchShape(1, 1024, False)))
    weights = 1_235_814_400  # the embedding is tied: it is the head's product
    attention = 16 * (4 + 10) / 2 * 32 * 1024 * 1024 * 64
    assert flops == pytest.approx(6 * weights * 1024 + attention, rel=0.01)


@pytest.mark.parametrize(
    "extra",
    [
        "",
        LORA,
        QLORA + CHECKPOINTED,
        LORA
        + "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true\nliger_rms_norm: true\n",
    ],
)
def test_listing_work_changes_no_allocation(extra):
    opened = subject(extra, each=2)
    run, few = opened.run, shallow(opened.run, opened.model).model
    shape = BatchShape(1, 256, False)
    plain, _ = ghost_run(run, few, widths=[shape], steps=1)
    from vramwise.ghost.hardware import Hardware

    tape = WorkTape(Hardware())
    loop = begin(tape, run, few)
    loop.train(make_plan(run, [shape], None, 1, few.num_hidden_layers))
    assert tape.timeline().events == plain.events
    assert tape.work.kernels


def test_checkpointing_costs_time_and_more_tokens_do():
    assert speed(LORA + CHECKPOINTED).step_seconds > speed(LORA).step_seconds
    assert speed(LORA, micro=4).step_seconds > speed(LORA, micro=1).step_seconds


def test_one_large_micro_batch_is_faster_than_many_small_ones():
    assert speed(LORA, micro=8, each=1).step_seconds < speed(LORA, micro=1, each=8).step_seconds


def test_quantised_weights_take_time_to_open():
    assert speed(QLORA).parts["dequantise"] > 0
    assert "dequantise" not in speed(LORA).parts


def test_a_slower_card_is_slower():
    assert speed(LORA, gpu="rtx-3060").step_seconds > 2 * speed(LORA, gpu="h200").step_seconds


def test_a_card_without_bf16_computes_in_fp16_at_its_tensor_rate():
    text = BASE.format(model="meta-llama/Llama-3.2-1B", micro=1, each=1).replace("bf16: true", "fp16: true") + LORA
    text += "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\ncut_cross_entropy: true\n"
    opened = subject_of_text(text, make_target(gpu="t4"))
    found = speed_of(opened.run, opened.model)
    assert 0 < found.parts["cut loss"] < found.parts["product"]


def test_parts_add_up_to_the_step():
    found = speed(LORA, each=4)
    assert sum(found.parts.values()) == pytest.approx(found.step_seconds, rel=0.011)


def test_seconds_stand_on_a_grid_of_one_per_cent():
    steps = log(speed(LORA).step_seconds) / log(1.01)
    assert steps == pytest.approx(round(steps))


def test_tokens_a_second_are_those_of_all_micro_batches():
    found = speed(LORA, micro=2, each=4)
    assert found.tokens_per_second == pytest.approx(8 * 1024 / found.step_seconds)


def test_a_card_without_rates_has_no_speed_and_a_sentence():
    opened = subject(gpu="gtx-1080")
    assert speed_of(opened.run, opened.model) is None
    assert "GTX 1080" in no_speed(opened.run)
    assert no_speed(subject().run) == ""


def test_batches_of_many_widths_take_what_they_take_on_the_average():
    opened = subject(LORA)
    narrow, wide = BatchShape(1, 512, True), BatchShape(1, 4096, True)
    alone = [speed_of(opened.run, opened.model, [shape]).step_seconds for shape in (narrow, wide)]
    both = speed_of(opened.run, opened.model, [narrow, wide]).step_seconds
    assert both == pytest.approx(sum(alone) / 2, rel=0.011)


BOUNDED = ["full.yml", "qlora.yml", "picture.yml"]


@pytest.mark.parametrize("name", BOUNDED)
def test_the_bound_is_below_the_prediction_and_close(name):
    from vramwise.opening.options import Options
    from vramwise.opening.subject import open_subject

    opened = open_subject(Path(__file__).parents[2] / "examples" / name, Options(gpu="rtx-4090"))
    peak = opened.prediction().needs.peak_allocated_bytes
    assert 0.98 * peak < lower_bound_bytes(opened.run, opened.model) <= peak


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_a_model_of_few_layers_has_a_bound_too(layers):
    opened = subject(QLORA + "activation_offloading: true\n" + CHECKPOINTED)
    opened = replace(opened, model=replace(opened.model, num_hidden_layers=layers))
    peak = opened.prediction().needs.peak_allocated_bytes
    assert 0.9 * peak < lower_bound_bytes(opened.run, opened.model) <= peak


@pytest.mark.parametrize(
    ("extra", "model"),
    [
        ("", "Qwen/Qwen2.5-0.5B"),
        (CHECKPOINTED, "Qwen/Qwen2.5-0.5B"),
        (LORA, "google/gemma-3-1b-it"),
        (QLORA + "activation_offloading: true\n" + CHECKPOINTED, "Qwen/Qwen2.5-0.5B"),
        ("rl: dpo\n" + LORA, "Qwen/Qwen2.5-0.5B"),
        ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n", "Qwen/Qwen2.5-0.5B"),
        ("optimizer: adafactor\nval_set_size: 0.1\neval_batch_size: 8\n", "Qwen/Qwen2.5-0.5B"),
        (LORA + "load_in_8bit: true\n", "Qwen/Qwen2.5-0.5B"),
        (LORA + "lora_modules_to_save: [lm_head]\nsample_packing: true\n", "Qwen/Qwen2.5-0.5B"),
    ],
)
def test_the_bound_never_exceeds_the_prediction(extra, model):
    opened = subject(extra, model=model, micro=2, each=2)
    if "fsdp" in extra:
        target = replace(opened.run.target, gpus=2)
        opened = subject_of_text(opened.document.text, target)
    peak = opened.prediction().needs.peak_allocated_bytes
    assert lower_bound_bytes(opened.run, opened.model) <= peak


def test_layers_without_a_pattern_have_no_bound():
    opened = subject()
    odd = opened.run.changed(unfrozen=("model.layers.7.*",))
    assert lower_bound_bytes(odd, opened.model) == 0


def test_every_card_with_rates_is_a_card():
    from vramwise.bundled import bundled_json

    names = bundled_json("facts/rates.json")["cards"]
    assert len(names) > 100
    for name in names:
        found = find_gpu(name)
        assert found.name == name
        assert found.multiprocessors is None or rates_of(found) is not None


def test_every_line_of_rates_names_its_source():
    from vramwise.bundled import bundled_json

    stored = bundled_json("facts/rates.json")
    assert {row[-1] for row in stored["cards"].values()} == set(stored["sources"])


FSDP = "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"


ZERO = "deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: true}}\n"


def on_two_cards(extra, **words):
    opened = subject(extra, model="Qwen/Qwen2.5-0.5B", gpu="rtx-4090", **words)
    return subject_of_text(opened.document.text, replace(opened.run.target, gpus=2))


def test_two_cards_give_more_tokens_a_second_but_not_twice_as_many():
    alone = speed("", model="Qwen/Qwen2.5-0.5B", micro=8, gpu="rtx-4090")
    both = on_two_cards("", micro=8)
    found = speed_of(both.run, both.model)
    assert alone.tokens_per_second < found.tokens_per_second < 2 * alone.tokens_per_second


@pytest.mark.parametrize("extra", ["", FSDP, ZERO])
def test_a_slow_link_between_cards_is_waited_for(extra):
    both = on_two_cards(extra, micro=1, each=3)
    shape, rates = BatchShape(1, 512, False), rates_of(both.run.target.gpu)
    fast, slow = (
        timed(both.run, both.model, shape, replace(rates, link=link), efficiency()).seconds for link in (1e12, 1e9)
    )
    assert slow > 1.5 * fast


def test_offloading_activations_waits_for_the_bus():
    plain, sent = (speed(CHECKPOINTED + extra, micro=8) for extra in ("", "activation_offloading: legacy\n"))
    assert sent.step_seconds > plain.step_seconds
