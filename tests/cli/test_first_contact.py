"""What a new user meets first: the verdict tells the truth, quickly, in few lines, and natural input is understood."""

import json
import re
from pathlib import Path

import pytest

from vramwise.variants.effort import FIGURES, REMEDY, Effort

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = """\
base_model: HuggingFaceTB/SmolLM2-135M
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 1024
pad_to_sequence_len: true
micro_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 0.0002
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""
SCREEN = 25


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("config.yml")
    path.write_text(SMALL)
    return path


@pytest.fixture
def spent(monkeypatch):
    """Every count of effort that a command makes."""
    counts: list[Effort] = []
    made = Effort.__init__

    def count(self, *words, **named):
        made(self, *words, **named)
        counts.append(self)

    monkeypatch.setattr(Effort, "__init__", count)
    return counts


def predicted(vramwise, *words):
    done = vramwise("predict", *words, "--format", "json")
    return done.exit_code, json.loads(done.stdout)


# 1. A run that cannot start does not fit.


def test_what_fails_on_the_card_will_not_start(vramwise, config):
    done = vramwise("predict", config, "--gpu", "t4")
    assert done.exit_code == 1
    assert done.stdout.startswith("✗ Will not start: flash_attention_2 needs sm_80 or newer, T4 is sm_75")
    assert re.search(r"\(it would need [\d.]+ GiB, 13\.8 usable on T4\)", done.stdout.splitlines()[0])
    _, document = predicted(vramwise, config, "--gpu", "t4")
    assert document["fits"] is False
    assert (document["verdict"]["kind"], document["verdict"]["memory"]) == ("stops", "fits")
    assert [one["rule"] for one in document["stops"]] == ["attention-unsupported-card"]
    found = json.loads(vramwise("check", config, "--gpu", "t4", "--format", "json").stdout)["files"][0]["findings"]
    assert [one["severity"] for one in found if one["rule"] == "attention-unsupported-card"] == ["error"]


@pytest.mark.usefixtures("brief_searches")
def test_fit_fixes_what_it_can_and_says_so(vramwise, config):
    done = vramwise("fit", config, "--gpu", "t4", "--format", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [one["rule"] for one in found["repairs"]] == ["attention-unsupported-card"]
    assert found["stops"] == []
    assert "+attn_implementation: sdpa\n" in found["best"]["diff"]
    assert "; your file will not start" in found["verdict"]["text"]


@pytest.mark.usefixtures("brief_searches")
def test_fit_stops_at_what_it_cannot_fix(vramwise, config):
    config.write_text(SMALL + "wandb_watch: false\n")
    done = vramwise("fit", config, "--gpu", "rtx-4090", "--format", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["verdict"]["kind"] == "stops"
    assert found["verdict"]["text"].startswith("Will not start: wandb_watch takes text, found false")
    assert [one["rule"] for one in found["stops"]] == ["wrong-type"]


def test_misspelt_settings_are_errors_that_still_run(vramwise, config):
    config.write_text(SMALL.replace("micro_batch_size", "micro_batchsize").replace("lora_r:", "lora_rank:"))
    code, document = predicted(vramwise, config, "--gpu", "rtx-4090")
    assert code == 1
    assert document["fits"] is False
    messages = " ".join(one["message"] for one in document["stops"])
    assert "did you mean micro_batch_size?" in messages
    assert "lora_r" in messages


def test_what_if_says_that_the_changed_run_will_not_start(vramwise, config):
    done = vramwise("predict", config, "--gpu", "rtx-4090", "--what-if", "adapter=qlora")
    scenario = done.stdout.partition("What if")[2]
    assert "✗ Will not start: " in scenario
    assert "Fits" not in scenario
    assert "Tight" not in scenario


def test_what_only_the_parser_refuses_leaves_the_memory_answer(vramwise, config):
    config.write_text(SMALL + "wandb_watch: false\n")
    code, document = predicted(vramwise, config, "--gpu", "rtx-4090")
    assert code == 1
    assert document["verdict"]["kind"] == "stops"
    assert document["peak_reserved_bytes"] > 0
    assert "it would need " in document["verdict"]["text"]


def test_silenced_errors_stop_nothing(vramwise, config):
    line = "attn_implementation: flash_attention_2"
    config.write_text(SMALL.replace(line, f"{line}  # vramwise: ignore[attention-unsupported-card] own build"))
    code, document = predicted(vramwise, config, "--gpu", "t4")
    assert (code, document["verdict"]["kind"]) == (0, "fits")


# 2. check does not search; predict spends little on a remedy; nothing is written before it was seen.


def test_check_does_not_search(vramwise, config, spent, monkeypatch):
    monkeypatch.setattr("vramwise.verbs.drafts.search_of", lambda *_: pytest.fail("searched"))
    config.write_text(SMALL.replace("micro_batch_size: 2", "micro_batch_size: 64"))
    done = vramwise("check", config, "--gpu", "rtx-4090")
    assert "does-not-fit" in done.stdout
    assert f"vramwise fit {config} --gpu rtx-4090" in done.stdout
    assert "--write" not in done.stdout
    # a simulation that was begun is ended
    assert all(one.spent <= one.run + REMEDY + FIGURES + 2 * one.run for one in spent)


def test_predict_offers_what_it_simulated_within_a_second(vramwise, config, spent):
    config.write_text(SMALL.replace("micro_batch_size: 2", "micro_batch_size: 64"))
    done = vramwise("predict", config, "--gpu", "rtx-4090")
    assert done.exit_code == 1
    assert "What would make it fit" in done.stdout
    assert "--write" not in done.stdout
    assert all(one.spent <= one.run + REMEDY + 2 * one.run for one in spent)
    _, document = predicted(vramwise, config, "--gpu", "rtx-4090")
    (remedy,) = document["remedies"]
    words = remedy["options"].replace("'", "").split()
    _, tried = predicted(vramwise, config, "--gpu", "rtx-4090", *words)
    assert tried["what_if"]["fits"] is True


# 3. The largest value is the largest with what fit may change.


@pytest.mark.nightly  # by day with two layers: tests/fitting/test_fit_answers.py
def test_the_largest_value_uses_what_fit_may_change(vramwise, config):
    config.write_text(SMALL.replace("micro_batch_size: 2", "micro_batch_size: 8"))
    words = ("fit", config, "--gpu", "2GB", "--max", "sequence_len", "--format", "json")
    combined = json.loads(vramwise(*words).stdout)
    keep = [word for key in ("micro_batch_size", "gradient_checkpointing", "optimizer") for word in ("--keep", key)]
    kept = json.loads(vramwise(*words, *keep).stdout)

    def length(found):
        return next(edit["value"] for edit in found["best"]["edits"] if edit["key"] == "sequence_len")

    assert len(combined["best"]["edits"]) > 1
    assert length(combined) > length(kept)


# 4. One answer whichever card is asked about.


def test_usable_means_the_same_everywhere(vramwise, config):
    (card,) = json.loads(vramwise("gpus", "t4", "--format", "json").stdout)["gpus"]
    _, document = predicted(vramwise, config, "--gpu", "t4")
    assert card["usable_by_a_run_bytes"] == document["capacity_bytes"]
    assert "13.8 GiB" in vramwise("gpus", "t4").stdout


# 5. Natural input.


@pytest.mark.parametrize(
    ("said", "name", "gpus"),
    [
        ("a100-80", "A100 80GB", 1),
        ("8xH100", "H100 80GB", 8),
        ("2x24GB", "24GB", 2),
        ("4x rtx-4090", "RTX 4090", 4),
    ],
)
def test_cards_as_people_write_them(vramwise, config, said, name, gpus):
    _, document = predicted(vramwise, config, "--gpu", said)
    assert document["gpu"] == name
    text = vramwise("predict", config, "--gpu", said).stdout
    assert (f"{gpus} GPUs" in text) == (gpus > 1)


def test_a_model_in_place_of_a_config(vramwise):
    _, document = predicted(vramwise, "HuggingFaceTB/SmolLM2-135M", "--gpu", "rtx-4090")
    assert document["model"] == "HuggingFaceTB/SmolLM2-135M"


def test_a_file_with_nearly_this_name_is_named(vramwise, config):
    done = vramwise("check", "config.yaml")
    assert done.exit_code == 2
    assert "config.yml" in f"{done.output}{done.exception}"


def test_rules_are_searched_with_unquoted_words(vramwise):
    done = vramwise("rules", "--search", "oom", "after", "eval")
    assert done.exit_code == 0
    assert "eval" in done.stdout


# 6. One screen, and missing keys are the file's.


@pytest.mark.parametrize("gpu", ["t4", "rtx-4090", "h100"])
@pytest.mark.parametrize("example", ["qlora.yml", "full.yml", "picture.yml"])
def test_a_prediction_is_one_screen(vramwise, example, gpu):
    shown = vramwise("predict", EXAMPLES / example, "--gpu", gpu).stdout
    assert len(shown.splitlines()) <= SCREEN
    assert shown.count("at worst") <= 1
    assert "Phase by phase" not in shown
    assert "Phase by phase" in vramwise("predict", EXAMPLES / example, "--gpu", gpu, "--verbose").stdout


def test_a_missing_key_is_about_the_file(vramwise, config):
    config.write_text(SMALL.replace("gradient_checkpointing: true\n", ""))
    shown = vramwise("check", config, "--no-predict").stdout
    start = next(at for at, line in enumerate(shown.splitlines()) if "checkpointing-unset" in line)
    head, after = shown.splitlines()[start : start + 2]
    assert re.match(r"config\.yml: \w+ checkpointing-unset: ", head)
    assert "|" not in after
    found = json.loads(vramwise("check", config, "--no-predict", "--format", "json").stdout)["files"][0]["findings"]
    (unset,) = [one for one in found if one["rule"] == "checkpointing-unset"]
    assert (unset["line"], unset["column"], unset["end_line"], unset["end_column"]) == (1, 1, 1, 1)


def test_a_comment_anywhere_silences_what_is_about_the_file(vramwise, config):
    text = SMALL.replace("gradient_checkpointing: true\n", "")
    config.write_text(f"{text}# vramwise: ignore[checkpointing-unset] there is room\n")
    assert "checkpointing-unset" not in vramwise("check", config, "--no-predict").stdout
    config.write_text(text)
    assert "checkpointing-unset" in vramwise("check", config, "--no-predict").stdout


def test_a_finding_at_a_line_is_silenced_on_that_line_alone(vramwise, config):
    text = SMALL.replace("adamw_torch_fused", "adamw_8bt")
    config.write_text(f"{text}# vramwise: ignore[unknown-optimizer]\n")
    assert "config.yml:15:1 error unknown-optimizer" in vramwise("check", config, "--no-predict").stdout
    config.write_text(text.replace("adamw_8bt", "adamw_8bt  # vramwise: ignore[unknown-optimizer]"))
    assert "unknown-optimizer" not in vramwise("check", config, "--no-predict").stdout


@pytest.mark.parametrize("words", [("fit", "--gpu", "rtx-4090", "--write"), ("fix",)])
def test_settings_for_one_command_are_not_written(vramwise, tmp_path, words):
    path = tmp_path / "config.yml"
    path.write_text("base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\n")
    done = vramwise(words[0], path, *words[1:], "--set", "micro_batch_size=2")
    assert done.exit_code == 2
    assert "--set changes the config for this command only" in done.stderr
    assert "micro_batch_size: 1" in path.read_text()
