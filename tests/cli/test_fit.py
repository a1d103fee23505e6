"""`vramwise fit` end to end: the answer, what is written, what is refused."""

import json
import sys
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from vramwise.cli.main import main

# Two layers: a search is dozens of predictions.
MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
}
SETTLED = ("--with", "axolotl==0.21.0", "--torch", "2.11")
CONFIG = """\
# my run
base_model: ./model   # the small one
sequence_len: 2048
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 4  # four in all
num_epochs: 3
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true    # to be safe
attn_implementation: flash_attention_2
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps(MODEL))
    path = Path("config.yml")
    path.write_text(CONFIG)
    return path


def fit(vramwise, *words, card="rtx-4090", stdin=None):
    return vramwise("fit", *words, "--gpu", card, *SETTLED, stdin=stdin)


def test_a_card_that_is_half_empty_gets_a_faster_variant_and_the_file_stays(vramwise, config):
    result = fit(vramwise, config)
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first.startswith("✓ Fits with ")
    assert "as fast as your file: " in first
    assert "-gradient_checkpointing: true    # to be safe" in rest
    assert "+gradient_checkpointing: false    # to be safe" in rest
    assert rest[-1] == "  vramwise fit config.yml --gpu rtx-4090 --torch 2.11 --with axolotl==0.21.0 --write"
    assert config.read_text() == CONFIG
    assert result.stderr == ""


def test_what_is_written_fits_keeps_comments_and_is_an_answer_itself(vramwise, config):
    written = fit(vramwise, config, "--write")
    assert written.exit_code == 0
    assert "Written: config.yml" in written.stdout
    after = config.read_text()
    assert after != CONFIG
    assert after.startswith("# my run\nbase_model: ./model   # the small one\n")
    predicted = vramwise("predict", config, "--gpu", "rtx-4090", *SETTLED, "--format", "json")
    assert json.loads(predicted.stdout)["fits"] is True
    again = fit(vramwise, config, "--write")
    assert "Your file is already the fastest that fits" in again.stdout
    assert config.read_text() == after


def test_another_file_and_a_page_may_be_written(vramwise, config):
    result = fit(vramwise, config, "--out", "fitted.yml", "--html", "page.html", "--format", "json")
    document = json.loads(result.stdout)
    assert config.read_text() == CONFIG
    assert document["written"] == "fitted.yml"
    assert "gradient_checkpointing: false" in Path("fitted.yml").read_text()
    assert document["best"]["diff"].splitlines()[0] == "--- config.yml"
    assert document["best"]["speed"]["step_seconds"] < document["original"]["speed"]["step_seconds"]
    assert "wrote page.html" in result.stderr
    assert document["verdict"]["text"] in unescape(Path("page.html").read_text())


@pytest.mark.usefixtures("config")
def test_standard_input_and_output(vramwise):
    assert fit(vramwise, "-", stdin=CONFIG).stdout.startswith("✓ Fits with ")
    filtered = fit(vramwise, "-", "--write", stdin=CONFIG)
    assert filtered.stdout.startswith("# my run\nbase_model: ./model   # the small one\n")
    assert filtered.stderr.startswith("✓ Fits with ")


def test_a_key_that_is_kept_stays(vramwise, config):
    result = fit(vramwise, config, "--keep", "gradient_checkpointing", "--format", "json")
    document = json.loads(result.stdout)
    for one in (document["best"], *document["alternatives"]):
        assert not any(edit["key"] == "gradient_checkpointing" for edit in one["edits"])
    assert "--keep gradient_checkpointing" in document["command"]


def test_the_largest_that_fits(vramwise, config):
    result = fit(vramwise, config, "--max", "sequence_len", "--write", "--memory-limit", "6GiB")
    assert result.exit_code == 0
    largest = int(config.read_text().partition("sequence_len: ")[2].split()[0])
    assert result.stdout.split("with", 1)[0].endswith(f" The largest sequence_len that fits: {largest}, ")
    assert largest > 2048
    assert "Changes the training: rows of " in result.stdout


def test_where_nothing_fits_it_says_by_how_much_and_writes_nothing(vramwise, config, monkeypatch):
    monkeypatch.setattr(
        sys.modules["vramwise.verbs.fitting.fastest"], "ALLOW", {}
    )  # what words would give is a search for each
    result = fit(vramwise, config, "--write", "--margin", "23GiB", "--keep", "sequence_len", "--keep", "optimizer")
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith("✗ Found nothing that fits on RTX 4090 in ")
    assert " short of the margin at the closest" in first
    assert "Written" not in result.stdout
    assert config.read_text() == CONFIG


def test_a_shell_script_stays_and_its_config_is_written(vramwise, config):
    script = config.with_name("run.sh")
    line = f"axolotl train {config}\n"
    script.write_text(line)
    result = fit(vramwise, script, "--write")
    assert f"Written: {config}" in result.stdout
    assert script.read_text() == line
    assert config.read_text() != CONFIG
    script.write_text(f"axolotl train {config} --micro-batch-size 2\n")
    assert "the launch line changes values" in str(fit(vramwise, script, "--write").exception)


def test_a_file_that_cannot_be_written_is_said_before_the_search(vramwise, config, monkeypatch):
    monkeypatch.setattr(sys.modules["vramwise.cli.fit"], "fit_source", None)  # it is not called
    assert "there is no folder" in str(fit(vramwise, config, "--out", str(config.parent / "none" / "c.yml")).exception)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "the file is read-only" in str(fit(vramwise, config, "--write").exception)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu", "t4", "--allow", "qlroa"), "unknown value for --allow: qlroa; did you mean qlora"),
        (("--gpu", "t4", "--allow", "magic"), "choose one of lora, qlora, "),
        (("--gpu", "t4", "--keep", "sequence_length"), "--keep sequence_length: Axolotl knows no key"),
        ((), "use --gpu to name the card"),
        (("--gpu", "t4", "--margin", "much"), "'much' is not a size"),
        (("--gpu", "t4", "--max", "lora"), "--max lora: choose one of micro_batch_size"),
        (("--gpu", "t4", "--write", "--out", "x.yml"), "use only one"),
        (("--gpu", "t4", "--model", "nobody/unheard-of", "--offline"), "nobody/unheard-of"),
    ],
)
def test_mistakes_are_told_in_a_sentence(vramwise, config, words, sentence):
    result = vramwise("fit", config, *words)
    assert result.exit_code == 2
    assert sentence in str(result.exception)


def test_a_model_known_by_its_size_alone_is_searched_with_its_margin(vramwise, config):
    result = vramwise("fit", config, "--gpu", "t4", "--model", "nobody/unheard-of-13b", "--offline")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "nobody/unheard-of-13b is unknown, a plain model of the size in its name is taken" in said


def test_fix_mends_and_then_fits(vramwise, config):
    config.write_text(CONFIG + "val_set_size: 0.1\nevals_per_epoch: 2\neval_batch_size: 8\n")
    shown = vramwise("fix", "--fit", "--diff", config, "--gpu", "rtx-4090", *SETTLED)
    assert "config.yml would be changed to fit: Fits with " in shown.stderr
    assert "+gradient_checkpointing: false    # to be safe" in shown.stdout
    done = vramwise("fix", "--fit", config, "--gpu", "rtx-4090", *SETTLED)
    assert "config.yml fitted: Fits with " in done.stdout
    again = fit(vramwise, config)
    assert "Your file is already the fastest that fits" in again.stdout


def test_a_file_with_errors_is_fixed_before_it_is_fitted(vramwise, config):
    config.write_text(CONFIG.replace("adamw_torch_fused", "adamw_8bt"))
    shown = fit(vramwise, config).stdout
    assert "your file will not start: Use adamw_8bit; " in shown.splitlines()[0]
    assert "\n  Line 9 of your file: optimizer 'adamw_8bt' is unknown" in shown
    assert "-optimizer: adamw_8bt\n" in shown


def test_what_a_config_holds_does_nothing_on_a_terminal(vramwise, config):
    config.write_text(CONFIG.replace("# to be safe", "# \u202eto be safe"))
    shown = fit(vramwise, config).stdout
    assert "\u202e" not in shown
    assert "# \\u202eto be safe" in shown


def test_fix_without_a_card_has_nothing_to_fit_to(vramwise, config):
    assert vramwise("fix", "--fit", config).exit_code == 2
    assert config.read_text() == CONFIG


def test_progress_is_for_who_waits_at_a_terminal(config, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["vramwise", "fit", "config.yml", "--gpu", "rtx-4090", *SETTLED])
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().err
    assert "predictions" in shown
    assert shown.endswith("\r\x1b[K")  # gone when the answer comes


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("words", "early"), [((), True), (("--max", "micro_batch_size"), False)])
def test_a_million_micro_batches_are_answered_within_the_limit(vramwise, config, monkeypatch, words, early):
    for name in ("ANSWER", "BESIDE", "OPENED"):
        monkeypatch.setattr(import_module("vramwise.verbs.fitting.fastest"), name, 500_000)
    config.write_text(CONFIG.replace("gradient_accumulation_steps: 4 ", "gradient_accumulation_steps: 1000000 "))
    result = fit(vramwise, config, *words, "--format", "json")
    assert result.exit_code in (0, 1)
    document = json.loads(result.stdout)
    assert document["ended_early"] is early
    assert any("The search reached its limit" in reason for reason in document["reasons"]) is early
    assert ("were not tried" in document["fallen"]) is early
