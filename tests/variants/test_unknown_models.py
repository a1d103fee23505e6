"""A model that is not known is a doubt about the run, in `predict` and in `check`."""

import json

import pytest

from vramwise.models.config import model_from_config
from vramwise.models.known import by_name
from vramwise.models.parameters import parameter_count
from vramwise.variants.doubts import model_doubts

QWEN5 = {
    "model_type": "qwen5",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}
CONFIG = """base_model: ./m
datasets:
  - {path: d.jsonl, type: alpaca}
sequence_len: 512
micro_batch_size: 1
num_epochs: 1
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
bf16: true
optimizer: adamw_torch
learning_rate: 0.0001
output_dir: o
"""


def test_an_unknown_type_is_a_doubt_with_a_margin():
    model = model_from_config(QWEN5, name="m", source="config.json")
    (doubt,) = model_doubts(None, model)
    assert (doubt.kind, doubt.text) == ("model", "model type qwen5 is unknown, treated as llama")
    assert 0 < doubt.more < doubt.less < 1
    known = model_from_config(QWEN5 | {"model_type": "qwen3"}, name="m", source="config.json")
    assert list(model_doubts(None, known)) == []


def test_a_shape_inferred_from_the_name_is_a_doubt_with_a_margin():
    model = by_name("acme/llama-3.2-1b-roleplay")
    (doubt,) = model_doubts(None, model)
    assert "acme/llama-3.2-1b-roleplay is unknown" in doubt.text
    assert "Llama-3.2-1B" in doubt.text
    assert doubt.more > 0 < doubt.less


@pytest.mark.parametrize(("name", "billions"), [("acme/secret-7b-chat", 7), ("/models/ours-3b-v2", 3)])
def test_a_size_alone_gives_a_plain_model_with_a_wider_margin(name, billions):
    model = by_name(name)
    assert parameter_count(model) == pytest.approx(billions * 1e9, rel=0.1)
    (doubt,) = model_doubts(None, model)
    (nearer,) = model_doubts(None, by_name("acme/llama-3.2-1b-roleplay"))
    assert f"{name} is unknown, a plain model of the size in its name is taken" in doubt.text
    assert doubt.more > nearer.more


@pytest.mark.parametrize("name", ["acme/secret-chat", "acme/secret-8x7b", "acme/secret-900b", "acme/a-30b-a3b-mix"])
def test_no_size_or_an_uncommon_one_gives_nothing(name):
    assert by_name(name) is None


def test_check_says_that_the_type_is_unknown(tmp_path, vramwise, monkeypatch):
    monkeypatch.setenv("VRAMWISE_TRACE", "0")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(QWEN5))
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    found = vramwise("check", str(path), "--gpu", "rtx-4090")
    summary = " ".join(found.stdout.split())
    assert "it may need up to 12 % more or 26 % less: model type qwen5 is unknown, treated as llama" in summary
    assert found.output.count("qwen5") == 1


def test_the_verdict_names_the_condition_under_which_it_holds(tmp_path, vramwise, monkeypatch):
    monkeypatch.setenv("VRAMWISE_TRACE", "0")
    (tmp_path / "m").mkdir()
    for model_type, said in (("qwen5", "✓ If model type qwen5 is like llama, it fits: "), ("qwen3", "✓ Fits: ")):
        (tmp_path / "m" / "config.json").write_text(json.dumps(QWEN5 | {"model_type": model_type}))
        (tmp_path / "c.yaml").write_text(CONFIG)
        found = vramwise("predict", str(tmp_path / "c.yaml"), "--gpu", "rtx-4090")
        assert found.stdout.startswith(said)
