"""`vramwise new` on the command line: where the config goes, what is said, and the exit codes."""

import json

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("brief_searches")
MODEL = "HuggingFaceTB/SmolLM2-135M"
WORDS = ("new", MODEL, "--gpu", "rtx-3060", "--method", "lora", "--offline")


def rows(folder, pairs=125):
    path = folder / "data.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": "Hi", "completion": "Ho " * n}) for n in [5, 255] * pairs))
    return path


def test_the_config_goes_to_stdout_and_the_verdict_to_stderr(vramwise, tmp_path):
    found = vramwise(*WORDS, "--data", rows(tmp_path))
    assert found.exit_code == 0
    assert yaml.safe_load(found.stdout)["adapter"] == "lora"
    first = found.stderr.splitlines()[0]
    for part in (f"LoRA of {MODEL} (Axolotl) fits RTX 3060", "GiB of", "a step", "in all"):
        assert part in first
    for line in found.stdout.splitlines():
        if line.startswith("micro_batch_size"):
            assert "to spare" in line


def test_what_is_written_passes_check(vramwise, tmp_path):
    out = tmp_path / "new.yml"
    assert vramwise(*WORDS, "--data", rows(tmp_path), "--out", out).exit_code == 0
    checked = vramwise("check", out, "--gpu", "rtx-3060")
    assert checked.exit_code == 0
    assert "nothing found" in checked.stdout


def test_no_file_is_written_over(vramwise, tmp_path):
    out = tmp_path / "mine.yml"
    out.write_text("mine: true\n")
    found = vramwise(*WORDS, "--out", out)
    assert found.exit_code == 2
    assert "never writes over a file" in str(found.exception)
    assert out.read_text() == "mine: true\n"


def test_dataset_info_is_written_once(vramwise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows(tmp_path, pairs=1)
    words = (*WORDS, "--trainer", "llamafactory", "--data", "data.jsonl")
    assert "wrote dataset_info.json" in vramwise(*words, "--out", "a.yml").stderr
    before = (tmp_path / "dataset_info.json").read_text()
    assert "left alone" in vramwise(*words, "--out", "b.yml").stderr
    assert (tmp_path / "dataset_info.json").read_text() == before


def test_nothing_fits_is_exit_code_1_and_no_config(vramwise, tmp_path):
    found = vramwise("new", "Qwen/Qwen3-8B", "--gpu", "4GB", "--out", tmp_path / "new.yml")
    assert found.exit_code == 1
    assert found.stdout == ""
    assert "Nothing fits 4GB" in found.stderr
    assert "The smallest card for it" in found.stderr
    assert not (tmp_path / "new.yml").exists()


def test_an_unknown_format_is_one_sentence(vramwise, tmp_path):
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    found = vramwise(*WORDS, "--data", tmp_path / "odd.csv")
    assert found.exit_code == 2
    assert "is unknown (columns: a, b). Known formats: alpaca" in str(found.exception)


def test_json_says_the_same(vramwise):
    text = vramwise(*WORDS)
    found = json.loads(vramwise(*WORDS, "--format", "json").stdout)
    assert found["config"] == text.stdout
    assert found["verdict"]["text"] in text.stderr
