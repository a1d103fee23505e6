"""What Axolotl's preference keys mean, by version."""

import pytest

from opened import make_target, subject_of_text

BASE = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n"
LORA = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"


def run(text: str, version: str = "0.21.0"):
    return subject_of_text(BASE + text, make_target(versions=(f"axolotl=={version}",))).run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rl: dpo\n", ("dpo", "model", "bf16", False)),
        ("rl: ipo\n" + LORA, ("dpo", "adapter_off", "bf16", False)),
        ("rl: dpo\nrl_adapter_ref_model: true\n" + LORA, ("dpo", "model", "bf16", False)),
        ("rl: kto\n", ("kto", "model", "fp32", True)),
        ("rl: kto\n" + LORA, ("kto", "adapter_off", "bf16", False)),
        ("rl: orpo\n", ("orpo", "none", "bf16", False)),
        ("rl: simpo\n", ("cpo", "none", "bf16", True)),
        ("rl: simpo\n" + LORA, ("cpo", "none", "bf16", False)),
        ("rl: grpo\n", ("grpo", "none", "bf16", True)),
        ("rl: grpo\ntrl:\n  beta: 0.1\n", ("grpo", "model", "fp32", True)),
        ("rl: grpo\nrl_beta: 0.1\n" + LORA, ("grpo", "adapter_copy", "bf16", False)),
        ("reward_model: true\n", ("reward", "none", "bf16", False)),
        ("process_reward_model: true\n", ("process_reward", "none", "bf16", False)),
        ("rl: ebft\n" + LORA, ("tokens", "none", "bf16", False)),
        ("", ("tokens", "none", "bf16", False)),
    ],
)
def test_what_is_held_against_what(text, expected):
    found = run(text)
    assert (
        found.objective.kind,
        found.objective.reference,
        found.objective.reference_dtype,
        found.objective.spare_model,
    ) == expected


def test_what_changed_with_0_21():
    for version, kernel, empties in (
        ("0.18.0", "copied", True),
        ("0.20.0", "copied", True),
        ("0.21.0", "fused", False),
    ):
        found = run("rl: dpo\n" + LORA, version)
        assert (found.objective.log_probs, found.objective.empties_cache_each_step) == (kernel, empties)
    assert not run("rl: kto\n" + LORA, "0.19.0").objective.empties_cache_each_step
    assert run("rl: dpo\ndpo_use_liger_kernel: true\n" + LORA).objective.log_probs == "chunked"


def test_trl_pads_to_the_longest_row():
    found = run("rl: dpo\npad_to_sequence_len: true\nsequence_len: 1024\n" + LORA)
    assert (found.shapes.pad_to_sequence_len, found.shapes.pad_multiple, found.shapes.constant_shapes) == (
        False,
        1,
        False,
    )
    assert run("rl: dpo\npad_to_multiple_of: 64\n" + LORA).shapes.pad_multiple == 64
    assert run("rl: kto\npad_to_multiple_of: 64\n" + LORA).shapes.pad_multiple == 1
    assert run("reward_model: true\nsequence_len: 1000\n").shapes.pad_multiple == 1024


def test_a_cross_entropy_beside_the_preference():
    assert run("rl: orpo\n").objective.chosen_cross_entropy
    assert run("rl: simpo\n").objective.chosen_cross_entropy
    assert not run("rl: simpo\ncpo_alpha: 0\n").objective.chosen_cross_entropy
    assert run("rl: dpo\ndpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [1.0, 1.0]\n").objective.chosen_cross_entropy
    assert not run("rl: dpo\n").objective.chosen_cross_entropy


def test_generation():
    grpo = "rl: grpo\n" + LORA + "trl:\n  num_generations: 4\n"
    found = run(grpo)
    assert (found.objective.generation_rows, found.objective.rows_per_prompt, found.objective.completion_len) == (
        8,
        4,
        256,
    )
    assert (found.objective.engine, found.objective.old_log_probs) == ("policy", False)
    # generated once for two steps: the second learns from samples of an older policy
    assert run(grpo + "  generation_batch_size: 16\n").objective.old_log_probs
    assert run(grpo + "  num_iterations: 2\n").objective.old_log_probs


@pytest.mark.parametrize(("version", "share"), [("0.18.0", 0.9), ("0.20.0", 0.9), ("0.21.0", 0.3)])
def test_the_engine(version, share):
    grpo = "rl: grpo\n" + LORA + "trl:\n  use_vllm: true\n  vllm_mode: "
    beside = run(grpo + "colocate\n  vllm_enable_sleep_mode: true\n", version)
    assert (beside.objective.engine, beside.objective.engine_share, beside.objective.engine_sleeps) == (
        "beside",
        share,
        True,
    )
    assert run(grpo + "colocate\nvllm:\n  gpu_memory_utilization: 0.5\n", version).objective.engine_share == 0.5
    assert run(grpo + "server\n", version).objective.engine == "elsewhere"
