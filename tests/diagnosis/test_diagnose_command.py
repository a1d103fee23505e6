"""The command: exit codes, the first line, the JSON contract, edits with a config."""

import json
import re
from pathlib import Path

import pytest
from failure_cases import CASES
from made_snapshots import fragmented, write

from failure_logs import CROSS, LOSS, STEP, TRAIN, bar, lines, oom, traceback
from vramwise.variants import prediction

DATA = Path(__file__).parent.parent / "data" / "diagnose"
CONFIG = """\
base_model: meta-llama/Llama-3.2-1B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
pad_to_sequence_len: true
micro_batch_size: 8  # rows
gradient_accumulation_steps: 2
optimizer: adamw_torch
learning_rate: 0.0002
bf16: true
attn_implementation: flash_attention_2
gradient_checkpointing: true
"""
LOGITS = lines(
    bar(0, 400),
    traceback(TRAIN, STEP, LOSS, CROSS),
    oom("7.83 GiB", total="15.70 GiB", free="2.10 GiB", used="13.50 GiB", allocated="12.60 GiB"),
)


@pytest.fixture
def files(tmp_path):
    def make(**texts):
        for name, text in texts.items():
            (tmp_path / name.replace("_", ".")).write_text(text, encoding="utf-8")
        return [tmp_path / name.replace("_", ".") for name in texts]

    return make


def test_exit_codes(vramwise, files):
    good, bad = files(good_log=CASES["a good run"][0], bad_log=CASES["fragments"][0])
    assert vramwise("diagnose", good).exit_code == 0
    assert vramwise("diagnose", bad).exit_code == 1
    assert vramwise("diagnose", good.parent / "none.log").exit_code == 2
    assert vramwise("diagnose").exit_code == 2
    assert vramwise("diagnose", bad, "--config", good.parent / "none.yml").exit_code == 2
    assert vramwise("diagnose", bad, "--snapshot", bad).exit_code == 2
    assert vramwise("diagnose", bad, "--html", good.parent / "page.html").exit_code == 2


def test_the_first_line_is_the_diagnosis(vramwise):
    output = vramwise("diagnose", "-", stdin=CASES["in eval"][0]).output
    assert output.splitlines()[0].startswith(
        "Out of memory in evaluation after step 10: evaluation needs more than training"
    )
    assert "vramwise explain eval-batch-differs" in output
    assert re.search(r"-:\d+  torch\.OutOfMemoryError", output)
    assert "eval_batch_size" in output


def test_not_knowing_is_said_with_what_to_collect(vramwise):
    output = vramwise("diagnose", "-", stdin=CASES["only the aftermath"][0]).output
    assert "known" in output.splitlines()[0]
    assert "keep the full output of every rank" in output
    assert "_record_memory_history" not in output  # nothing says that memory ran out
    unsure = vramwise(
        "diagnose", "-", stdin="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling x\n"
    ).output
    assert "torch.cuda.memory._record_memory_history(" in unsure
    assert "_dump_snapshot" in unsure


def test_a_log_cannot_write_to_the_terminal(vramwise):
    output = vramwise("diagnose", "-", stdin="\x1b]0;owned\x07RuntimeError: \x1b[2J" + oom() + "\x08\n").output
    assert "\x1b" not in output
    assert "\x08" not in output


def test_every_case_renders_in_both_formats(vramwise):
    for name, (log, expected) in CASES.items():
        text = vramwise("diagnose", "-", stdin=log)
        document = json.loads(vramwise("diagnose", "-", "--format", "json", stdin=log).output)
        assert document["version"] == 1, name
        assert text.exit_code == (0 if expected in (None, "recovered") else 1), name
        assert text.output.splitlines()[0] == document["sentence"], name


def test_the_json_contract(vramwise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "snapshot.pickle", fragmented())
    (tmp_path / "train.log").write_text(CASES["fragments"][0], encoding="utf-8")
    output = vramwise("diagnose", "train.log", "--snapshot", "snapshot.pickle", "--format", "json").output
    golden = DATA / "diagnose.golden.json"
    assert json.loads(output) == json.loads(golden.read_text("utf-8"))


@pytest.mark.usefixtures("short_searches")
def test_with_a_config_the_change_is_a_diff(vramwise, files):
    config, log = files(config_yml=CONFIG, train_log=LOGITS)
    words = ("--config", config, "--with", "axolotl==0.19.0", "--format", "json")
    document = json.loads(vramwise("diagnose", log, *words).output)
    first = document["causes"][0]
    assert first["id"] == "logits"
    assert any("8 × 2048 tokens × 128256 vocabulary × 4 bytes" in said for said in first["evidence"])
    assert any("by simulation" in said for said in first["evidence"])
    edited = [remedy for remedy in first["remedies"] if remedy["diff"]]
    assert any("+liger_fused_linear_cross_entropy: true" in remedy["diff"] for remedy in edited)
    assert all(remedy["survives"] is True for remedy in edited)
    assert document["ghost_run"]
    assert config.read_text("utf-8") == CONFIG


def test_a_config_that_never_holds_logits_doubts_that_cause(vramwise, files):
    fused = CONFIG + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_fused_linear_cross_entropy: true\n"
    config, log = files(config_yml=fused, train_log=lines(bar(0, 400), oom("7.83 GiB", free="2.10 GiB")))
    document = json.loads(vramwise("diagnose", log, "--config", config, "--format", "json").output)
    doubted = [cause for cause in document["causes"] if cause["id"] == "logits"]
    assert all(any("contradicted" in said for said in cause["evidence"]) for cause in doubted)
    assert all(cause["confidence"] < 0.5 for cause in doubted)
    assert document["next_steps"]


def test_an_unknown_model_leaves_the_log_to_speak(vramwise, files):
    config, log = files(config_yml=CONFIG.replace("meta-llama/Llama-3.2-1B", "nobody/unheard-of"), train_log=LOGITS)
    output = vramwise("diagnose", log, "--config", config).output
    assert output.startswith("Out of memory in the loss at step 1")
    assert "not simulated" in output


def test_a_fault_of_the_prediction_leaves_the_diagnosis(vramwise, files, monkeypatch):

    def fault(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(prediction, "predict_run", fault)
    config, log = files(config_yml=CONFIG, train_log=LOGITS)
    result = vramwise("diagnose", log, "--config", config, "--format", "json")
    document = json.loads(result.output)
    assert result.exit_code == 1
    assert document["causes"][0]["id"] == "logits"
    failed = "the prediction of this config failed with an internal error (ZeroDivisionError)"
    assert sum(failed in said for said in document["causes"][0]["evidence"]) == 1
    assert document["ghost_run"] == [f"not simulated: {failed}"]
    assert document["causes"][0]["remedies"][0]["diff"]


@pytest.mark.usefixtures("short_searches")
def test_a_fault_while_a_change_is_tried_leaves_the_change(vramwise, files, monkeypatch):

    calls = []
    predict = prediction.predict_run

    def fault_later(*arguments, **options):
        calls.append(1)
        if len(calls) > 1:
            raise ZeroDivisionError("a bug")
        return predict(*arguments, **options)

    monkeypatch.setattr(prediction, "predict_run", fault_later)
    config, log = files(config_yml=CONFIG, train_log=LOGITS)
    first = json.loads(vramwise("diagnose", log, "--config", config, "--format", "json").output)["causes"][0]
    assert len(calls) > 1
    assert first["remedies"][0]["diff"]
    assert first["remedies"][0]["survives"] is None


def test_without_a_config_the_log_gives_the_values(vramwise):
    output = vramwise("diagnose", "-", stdin=CASES["logits of a larger eval batch"][0]).output
    assert "eval_batch_size: 4  # was 16" in output
    assert "what was requested: logits, 15.7 GiB = 16 × 2048 tokens × 128256 vocabulary × 4 bytes" in output
    assert "4 training steps had passed" in output


def test_the_verb_in_python(tmp_path):
    import vramwise

    path = tmp_path / "train.log"
    path.write_text(CASES["unscale"][0], encoding="utf-8")
    diagnosis = vramwise.diagnose(path)
    assert diagnosis.failed
    assert diagnosis.causes[0].rule == "fp16-full-finetune"
    assert vramwise.explain(diagnosis.causes[0].rule).id == "fp16-full-finetune"


def test_without_a_config_halving_keeps_the_logged_batch(vramwise):
    log = (
        '{"micro_batch_size": 5, "gradient_accumulation_steps": 2, "sequence_len": 2048}\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
        "of which 1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 100.00 MiB is "
        "reserved by PyTorch but unallocated.\n"
    )
    output = vramwise("diagnose", "-", stdin=log).output
    assert "micro_batch_size: 2  # was 5" in output
    assert "gradient_accumulation_steps: 5  # was 2" in output
