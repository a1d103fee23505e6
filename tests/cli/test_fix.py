"""`vramwise fix` end to end."""

import json
import stat
from pathlib import Path

import pytest

TEXT = """\
# my run
base_model: meta-llama/Llama-3.2-1B   # the small one
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true

sequence_len: 2048
pad_to_sequence_len: true
batch_size: 16      # all in all
micro_batch_size: 2
eval_batch_size: 8
val_set_size: 0.05
evals_per_epoch: 2
bf16: auto
attn_implementation: flash_attention_2
gradient_checkpointing: true
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_fused_linear_cross_entropy: true
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(TEXT)
    return path


def test_fix_changes_only_what_it_must(vramwise, config):
    result = vramwise("fix", config, "--gpu", "a100", "--no-predict")
    assert result.exit_code == 0, result.stdout
    after = config.read_text()
    assert "gradient_accumulation_steps: 8      # all in all\n" in after
    assert "\nbatch_size" not in after
    assert "eval_batch_size: 2\n" in after
    kept = [line for line in TEXT.splitlines() if not line.startswith(("batch_size", "eval_batch_size"))]
    assert [line for line in after.splitlines() if line in kept] == kept
    assert "fixed batch-size-set" in result.stdout
    assert "nothing found" in result.stdout.splitlines()[-1]


def test_twice_is_once(vramwise, config):
    vramwise("fix", config, "--gpu", "a100", "--no-predict")
    once = config.read_bytes()
    again = vramwise("fix", config, "--gpu", "a100", "--no-predict")
    assert config.read_bytes() == once
    assert again.stdout.startswith("0 fixes: 0 files changed")


def test_diff_writes_nothing(vramwise, config):
    result = vramwise("fix", config, "--diff", "--gpu", "a100", "--no-predict")
    assert result.exit_code == 1
    assert config.read_text() == TEXT
    assert "-eval_batch_size: 8\n" in result.stdout
    assert "+eval_batch_size: 2\n" in result.stdout
    assert result.stdout.startswith("--- ")


def test_memory_that_is_not_missed_is_saved_on_request_alone(vramwise, config):
    """On a card with room to spare a smaller eval batch costs time for nothing."""
    shown = vramwise("fix", config, "--diff", "--gpu", "a100").stdout
    assert "eval_batch_size: 2" not in shown
    assert "+eval_batch_size: 2\n" in vramwise("fix", config, "--diff", "--gpu", "a100", "--unsafe-fixes").stdout


def test_unsafe_fixes_need_to_be_asked_for(vramwise, config):
    config.write_text(TEXT.replace("adapter: lora\n", "adapter: lora\nload_in_4bit: true\n"))
    assert vramwise("fix", config, "--gpu", "a100", "--no-predict").exit_code == 1
    assert "adapter: lora\n" in config.read_text()
    assert vramwise("fix", config, "--gpu", "a100", "--unsafe-fixes").exit_code == 0
    assert "adapter: qlora\n" in config.read_text()


def test_check_fix_reports_the_rest(vramwise, config):
    config.write_text(TEXT.replace("adapter: lora\n", "adapter: lora\nload_in_4bit: true\n"))
    result = vramwise("check", "--fix", "--no-predict", config, "--gpu", "a100", "--format", "json")
    assert result.exit_code == 1
    assert [f["rule"] for f in json.loads(result.stdout)["files"][0]["findings"]] == ["lora-4bit-not-qlora"]
    assert "fixed batch-size-set" in result.stderr


def test_stdin_to_stdout(vramwise):
    result = vramwise("fix", "-", "--gpu", "a100", stdin=TEXT)
    assert result.exit_code == 0
    assert result.stdout.startswith("# my run\nbase_model")
    assert "gradient_accumulation_steps: 8" in result.stdout


def test_mode_and_symlink_survive(vramwise, config, tmp_path):
    config.chmod(0o640)
    link = tmp_path / "link.yml"
    link.symlink_to(config)
    vramwise("fix", link, "--gpu", "a100")
    assert link.is_symlink()
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert "gradient_accumulation_steps: 8" in config.read_text()


def test_crlf_and_bom_survive(vramwise, config):
    config.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    vramwise("fix", config, "--gpu", "a100", "--no-predict")
    after = config.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf")
    assert after.count(b"\n") == after.count(b"\r\n")


def test_an_anchored_value_is_refused_not_corrupted(vramwise, config):
    text = TEXT.replace("micro_batch_size: 2", "micro_batch_size: &size 2").replace(
        "eval_batch_size: 8", "eval_batch_size: &e 8"
    )
    text += "logging_steps: *e\n"
    config.write_text(text)
    result = vramwise("fix", config, "--gpu", "a100", "--no-predict")
    assert "eval_batch_size: &e" in config.read_text()
    assert result.exit_code in (0, 1)


def test_a_broken_file_is_left_alone(vramwise, config):
    config.write_text("a: [1\n")
    assert vramwise("fix", config).exit_code == 2
    assert config.read_text() == "a: [1\n"


def test_a_file_that_cannot_be_written_stops_no_other(vramwise, config, tmp_path, monkeypatch):
    locked, open_to_all = tmp_path / "locked.yml", tmp_path / "open.yml"
    for path in (locked, open_to_all):
        path.write_text("base_model: a/b\nmicro_batch_size: 2\nbatch_size: 8\n")
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != "locked.yml")
    done = vramwise("fix", str(locked), str(open_to_all))
    assert done.exit_code == 2
    assert "locked.yml error: cannot write the file, which is unchanged: permission denied" in done.output
    assert "batch_size: 8" in locked.read_text()
    assert "gradient_accumulation_steps: 4" in open_to_all.read_text()
