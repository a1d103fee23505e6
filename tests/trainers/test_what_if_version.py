"""`predict --what-if axolotl==…` end to end: what another version does to a run, in bytes and in findings."""

import json

import pytest

CONFIG = """\
base_model: model
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
load_in_8bit: true
sequence_len: 2048
pad_to_sequence_len: true
micro_batch_size: 4
bf16: true
gradient_checkpointing: true
val_set_size: 0.05
eval_steps: 50
eval_on_start: false
optimizer: muon_8bit
"""
MODEL = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
OLD = ("--gpu", "rtx-4090", "--with", "axolotl==0.19.0")


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize("version", ["0.21.0", "0.21"])
def test_an_upgrade_in_bytes_and_findings(vramwise, config, version):
    result = vramwise("predict", config, *OLD, "--what-if", f"axolotl=={version}", "--format", "json")
    assert result.exit_code == 1, result.output  # 0.19 does not start with this optimizer
    said = json.loads(result.stdout)
    assert (said["verdict"]["kind"], said["what_if"]["verdict"]["kind"]) == ("stops", "fits")
    # Non-reentrant checkpointing keeps what the reentrant form drops, and the first evaluation is off.
    assert said["what_if"]["peak_allocated_bytes"] != said["peak_allocated_bytes"]
    text = vramwise("predict", config, *OLD, "--what-if", f"axolotl=={version}").stdout
    assert f"What if axolotl=={version}" in text
    assert "gone: error unknown-optimizer" in text
    assert "gone: warning unknown-key" in text


def test_what_0_21_no_longer_calls_wrong(vramwise, config):
    """Once: an error that muon_8bit stops the run, a valid key called dropped, torch 2.14 refused."""
    result = vramwise("check", config, "--gpu", "rtx-4090", "--torch", "2.14", "--format", "json")
    rules = {found["rule"] for report in json.loads(result.stdout)["files"] for found in report["findings"]}
    assert not rules & {"unknown-optimizer", "unknown-key", "torch-too-old"}


def test_an_upgrade_that_is_refused(vramwise, config):
    config.write_text(CONFIG.replace("muon_8bit", "adamw_torch") + "fsdp:\n  - full_shard\n")
    text = vramwise("predict", config, *OLD, "--gpus", "2", "--what-if", "axolotl==0.20.0").stdout
    assert "new: error removed-key" in text


def test_a_key_of_another_version_says_which(vramwise, config):
    result = vramwise("predict", config, *OLD, "--what-if", "torch_compile_regional=true")
    assert result.exit_code == 2
    assert "torch_compile_regional was added in Axolotl 0.21, and this is 0.19" in str(result.exception)


def test_loading_needs_less_since_0_20(vramwise, config):
    """Embeddings and head are no longer held in fp32 for a moment: one fp32 copy of each falls away."""
    peaks = {}
    for version in ("0.19.0", "0.20.0"):
        result = vramwise("predict", config, "--with", f"axolotl=={version}", "--format", "json")
        peaks[version] = json.loads(result.stdout)["phases"]["load"]["peak_reserved_bytes"]
    vocabulary = MODEL["vocab_size"] * MODEL["hidden_size"]
    assert peaks["0.19.0"] - peaks["0.20.0"] >= vocabulary * 4
