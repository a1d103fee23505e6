"""`vramwise predict` of preference and reward training, end to end."""

import json

import pytest

from predicted_runs import MODEL, predicted

BASE = """\
base_model: model
sequence_len: 512
micro_batch_size: 2
bf16: true
gradient_checkpointing: true
"""
LORA = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
GRPO = "rl: grpo\ntrl:\n  max_completion_length: 32\n  num_generations: 2\n  beta: 0.04\n"
KINDS = {
    "dpo": "rl: dpo\n",
    "ipo": "rl: ipo\n",
    "kto": "rl: kto\nremove_unused_columns: false\n",
    "orpo": "rl: orpo\n",
    "simpo": "rl: simpo\n",
    "reward": "reward_model: true\n",
    "process": "process_reward_model: true\n",
    "grpo": GRPO,
}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    path = tmp_path / "config.yml"
    path.write_text(BASE)
    return path


def peak(vramwise, config, text, *words) -> int:
    config.write_text(BASE + text)
    return predicted(vramwise, config, "--gpu", "rtx-4090", *words)["peak_allocated_bytes"]


@pytest.mark.parametrize("adapter", ["", LORA], ids=["full", "lora"])
@pytest.mark.parametrize("version", ["0.18.0", "0.21.0"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_predicted(vramwise, config, kind, version, adapter):
    config.write_text(BASE + KINDS[kind] + adapter)
    document = predicted(vramwise, config, "--gpu", "rtx-4090", "--with", f"axolotl=={version}")
    # the LoRA kernels that 0.18 switches on by itself take no reward model
    starts = (kind, version, adapter) != ("reward", "0.18.0", LORA)
    assert document["fits"] is starts
    assert document["verdict"]["memory"] == "fits"
    assert not any("supervised fine-tuning" in sentence for sentence in document["assumptions"])
    phases = set(document["phases"])
    assert ("reference" in phases) == (kind in ("dpo", "ipo", "kto", "grpo"))
    assert ("generate" in phases) == (kind == "grpo")


def test_pairs_need_more_than_single_rows_and_a_reference_model_more_still(vramwise, config):
    alone = peak(vramwise, config, LORA)
    pairs = peak(vramwise, config, LORA + "rl: orpo\n")
    assert alone < pairs
    assert peak(vramwise, config, "rl: orpo\n") < peak(vramwise, config, "rl: dpo\n")


def test_what_is_not_modelled_is_said(vramwise, config):
    config.write_text(BASE + LORA + "rl: ebft\n")
    document = predicted(vramwise, config, "--gpu", "rtx-4090")
    assert any("ebft is not modelled" in sentence for sentence in document["assumptions"])


def test_an_engine_on_the_same_card_takes_its_share(vramwise, config):
    text = LORA + GRPO + "  use_vllm: true\n  vllm_mode: colocate\n"
    alone = peak(vramwise, config, LORA + GRPO)
    shares = {}
    for version in ("0.20.0", "0.21.0"):
        config.write_text(BASE + text)
        document = predicted(vramwise, config, "--gpu", "a100-80gb", "--with", f"axolotl=={version}")
        shares[version] = (document["peak_allocated_bytes"] - alone) / 1024**3
        assert any("vLLM is counted as" in sentence for sentence in document["assumptions"])
    assert shares["0.20.0"] > 65
    assert 20 < shares["0.21.0"] < 30
    config.write_text(BASE + text + "vllm:\n  gpu_memory_utilization: 0.5\n")
    half = predicted(vramwise, config, "--gpu", "a100-80gb")["peak_allocated_bytes"]
    assert 35 < (half - alone) / 1024**3 < 42


def test_lengths_of_pairs(vramwise, config, tmp_path):
    lengths = tmp_path / "lengths.txt"
    text = LORA + "rl: dpo\n"
    lengths.write_text("[400, 300]\n[200, 500]\n")
    long = peak(vramwise, config, text, "--lengths", lengths)
    lengths.write_text("[100, 90]\n80\n")
    short = peak(vramwise, config, text, "--lengths", lengths)
    lengths.write_text("100\n80\n")
    assert short < long < peak(vramwise, config, text)
    assert peak(vramwise, config, text, "--lengths", lengths) <= short
    lengths.write_text(('{"prompt": "a b", "chosen": "' + "x" * 320 + '", "rejected": "y"}\n') * 2)
    assert peak(vramwise, config, text, "--lengths", lengths) < short


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[100, 90]\n[5]\n", ":2: '[5]' is not a pair: write [chosen, rejected]"),
        ("[100, 90]\n[1, -2]\n", ":2: '[1, -2]' is not a pair"),
        ("[100, 90]\nten\n", ":2: 'ten' is not a pair"),
        ("100\n[100, 90]\n", ":2: '[100, 90]' is not a length"),
        ('{"length": [4, 5]}\n{"length": 4}\n', ":2: pairs and single samples are mixed"),
    ],
)
def test_lengths_that_are_none_are_refused_in_one_sentence(vramwise, config, tmp_path, written, said):
    lengths = tmp_path / "lengths.txt"
    lengths.write_text(written)
    config.write_text(BASE + LORA + "rl: dpo\n")
    result = vramwise("predict", config, "--gpu", "rtx-4090", "--lengths", lengths)
    assert result.exit_code == 2
    assert said in str(result.exception)


def test_pairs_for_a_run_without_pairs_are_refused(vramwise, config, tmp_path):
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("[100, 90]\n")
    config.write_text(BASE + LORA)
    result = vramwise("predict", config, "--gpu", "rtx-4090", "--lengths", lengths)
    assert result.exit_code == 2
    assert "the lengths are pairs" in str(result.exception)
