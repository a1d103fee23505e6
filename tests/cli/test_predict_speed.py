"""What `predict` says of speed: in text and JSON, with the data's size the hours, and why where it says nothing."""

import json
from pathlib import Path

import pytest

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
CONFIG = """\
base_model: ./model
sequence_len: 512
micro_batch_size: 2
gradient_accumulation_steps: 2
num_epochs: 2
bf16: true
optimizer: adamw_torch_fused
"""


@pytest.fixture
def predict(vramwise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps(MODEL))
    Path("config.yml").write_text(CONFIG)

    def asked(*words, card="h200"):
        return vramwise("predict", "config.yml", "--gpu", card, *words, "--torch", "2.11").stdout

    return asked


def test_a_line_of_its_own_below_the_verdict(predict):
    lines = predict().splitlines()
    (said,) = [line for line in lines if line.startswith("  About ")]
    assert " a step, " in said
    assert " tokens a second" in said
    assert "epoch" not in said  # nothing says how much data there is


def test_json_has_seconds_tokens_and_error(predict):
    speed = json.loads(predict("--format", "json"))["speed"]
    assert speed["step_seconds"] > 0
    # 2 × 2 rows of 512 tokens
    assert speed["tokens_per_second"] * speed["step_seconds"] == pytest.approx(2048)
    assert "error" in speed
    assert "hours" not in speed


def test_with_data_the_hours_follow(predict):
    Path("rows.jsonl").write_text("".join(json.dumps({"length": 100 + row}) + "\n" for row in range(100)))
    speed = json.loads(predict("--data", "rows.jsonl", "--format", "json"))["speed"]
    assert speed["steps"] == 50
    assert speed["hours"] == pytest.approx(50 * speed["step_seconds"] / 3600)
    assert "2 epochs of 100 samples (50 steps): " in predict("--data", "rows.jsonl")


def test_steps_that_are_counted_need_no_data(predict):
    Path("config.yml").write_text(CONFIG + "max_steps: 30\n")
    assert "; 30 steps: " in predict()


def test_a_card_without_rates_says_so(predict):
    assert json.loads(predict("--format", "json", card="24GB"))["speed"] is None
    assert "  No speed estimate: the rates of 24GB are unknown" in predict(card="24GB").splitlines()


def test_a_change_shows_what_it_does_to_speed(predict):
    shown = predict("--what-if", "gradient_checkpointing=true")
    (step,) = [line for line in shown.splitlines() if line.startswith("  a step ")]
    assert step.endswith(" × the tokens per second)")
    several = predict("--what-if", "micro_batch_size=1", "--what-if", "micro_batch_size=4")
    assert "  speed\n" in several
