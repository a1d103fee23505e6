"""`vramwise check` end to end: exit codes, targets, selection, suppression, several files, bad input."""

import json
from pathlib import Path

import pytest

from installed import not_root
from vramwise.trainers import trl
from vramwise.trainers.releases import known_versions

GOOD = """\
base_model: my/own-model
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 2048
pad_to_sequence_len: true
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: auto
attn_implementation: flash_attention_2
gradient_checkpointing: true
"""


@pytest.fixture
def config(tmp_path):
    def write(text, name="config.yml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def rules_of(result):
    return {found["rule"] for file in json.loads(result.stdout)["files"] for found in file["findings"]}


def test_a_clean_config_is_clean(vramwise, config):
    result = vramwise("check", config(GOOD), "--gpu", "rtx-4090")
    assert result.exit_code == 0, result.stdout
    assert "nothing found in 1 file" in result.stdout


def test_findings_give_exit_code_1_and_a_place(vramwise, config):
    path = config(GOOD + "val_set_size: 0.1\nevals_per_epoch: 2\neval_batch_size: 8\n")
    result = vramwise("check", path, "--gpu", "rtx-4090")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{path}:15:1 warning eval-batch-differs: eval_batch_size 8 differs")
    assert "15 | eval_batch_size: 8" in result.stdout
    assert "^^^^^^^^^^^^^^^^^^" in result.stdout
    assert "fix: Evaluate at the training micro-batch" in result.stdout
    assert result.stdout.strip().splitlines()[-1].startswith("1 warning in 1 file; 1 fixable")


def test_the_gravest_finding_comes_first(vramwise, config):
    path = config(
        "eval_batch_size: 8\nval_set_size: 0.1\n"
        + GOOD.replace("bf16: auto", "fp16: true").replace("adapter: lora\n", "")
    )
    first = vramwise("check", path, "--gpu", "a100").stdout.splitlines()[0]
    assert " error " in first


def test_min_severity_reports_and_fails_from_there(vramwise, config):
    path = config(GOOD + "val_set_size: 0.1\nevals_per_epoch: 2\neval_batch_size: 8\n")
    result = vramwise("check", path, "--gpu", "a100", "--min-severity", "error")
    assert result.exit_code == 0
    assert "eval-batch-differs" not in result.stdout


def test_notes_alone_do_not_fail_unless_asked(vramwise, config):
    path = config(GOOD.replace("gradient_checkpointing: true\n", ""))
    assert vramwise("check", path, "--gpu", "a100").exit_code == 0
    assert vramwise("check", path, "--gpu", "a100", "--min-severity", "info").exit_code == 1


def test_select_and_ignore(vramwise, config):
    path = config(GOOD + "val_set_size: 0.1\neval_batch_size: 8\nmicrobatch: 3\n")
    only = vramwise("check", path, "--format", "json", "--select", "eval-batch-differs")
    assert rules_of(only) == {"eval-batch-differs"}
    rest = vramwise("check", path, "--format", "json", "--ignore", "eval-batch-differs,unknown-key")
    assert not rules_of(rest) & {"eval-batch-differs", "unknown-key"}


def test_an_unknown_rule_id_is_a_usage_error_with_a_suggestion(vramwise, config):
    result = vramwise("check", config(GOOD), "--ignore", "eval-batch-differ")
    assert result.exit_code == 2
    assert "did you mean eval-batch-differs?" in str(result.exception)


@pytest.mark.parametrize(
    "comment", ["# vramwise: ignore[eval-batch-differs] measured, fits", "#vramwise:ignore[a, eval-batch-differs]"]
)
def test_a_comment_on_the_line_suppresses(vramwise, config, comment):
    path = config(GOOD + f"val_set_size: 0.1\nevals_per_epoch: 2\neval_batch_size: 8 {comment}\n")
    assert vramwise("check", path, "--gpu", "a100").exit_code == 0


def test_a_comment_for_another_rule_does_not(vramwise, config):
    path = config(GOOD + "val_set_size: 0.1\nevals_per_epoch: 2\neval_batch_size: 8 # vramwise: ignore[unknown-key]\n")
    assert vramwise("check", path, "--gpu", "a100").exit_code == 1


def test_the_closest_pyproject_decides(vramwise, config, tmp_path):
    path = config(GOOD + "val_set_size: 0.1\nevals_per_epoch: 2\neval_batch_size: 8\n")
    (tmp_path / "pyproject.toml").write_text('[tool.vramwise]\nignore = ["eval-batch-differs"]\ngpu = "t4"\ngpus = 2\n')
    result = vramwise("check", path, "--format", "json")
    assert "eval-batch-differs" not in rules_of(result)
    resolved = json.loads(result.stdout)["files"][0]["resolved"]
    assert (resolved["gpus"], resolved["precision"]) == (2, "fp16")
    assert (
        json.loads(vramwise("check", path, "--format", "json", "--gpu", "a100").stdout)["files"][0]["resolved"][
            "precision"
        ]
        == "bf16"
    )


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[tool.vramwise]\nignroe = []\n", "is not a valid setting"),
        ("[tool.vramwise]\nignore = 'x'\n", "must be a list"),
        ("[tool.vramwise]\nignore = ['nope']\n", "no such rule 'nope'"),
        ("[tool.vramwise]\ngpu = 'rtx-9999'\n", "rtx-9999"),
        ("[tool.vramwise]\nmin-severity = 'bad'\n", "must be one of"),
        ("[tool.vramwise\n", "cannot be read"),
    ],
)
def test_bad_project_settings_are_one_clear_sentence(vramwise, config, tmp_path, toml, words):
    (tmp_path / "pyproject.toml").write_text(toml)
    result = vramwise("check", config(GOOD))
    assert result.exit_code == 2
    assert words in str(result.exception)


def test_the_project_may_name_the_launcher(vramwise, config, tmp_path):
    path = config(GOOD)
    (tmp_path / "pyproject.toml").write_text('[tool.vramwise]\nlauncher = "module"\n')
    result = vramwise("check", path, "--gpu", "a100", "--torch", "2.11", "--format", "json")
    assert "allocator-not-expandable" in rules_of(result)
    assert "allocator-not-expandable" not in rules_of(
        vramwise("check", path, "--gpu", "a100", "--torch", "2.11", "--launcher", "cli", "--format", "json")
    )


def test_several_files_and_folders(vramwise, config, tmp_path):
    config(GOOD, "a.yml")
    config(GOOD, "b.yaml")
    config("not a config", "notes.txt")
    result = vramwise("check", tmp_path, tmp_path / "a.yml", "--gpu", "a100", "--format", "json")
    names = [Path(file["path"]).name for file in json.loads(result.stdout)["files"]]
    assert names == ["a.yml", "b.yaml"]


def test_stdin(vramwise):
    result = vramwise("check", "-", "--gpu", "a100", stdin=GOOD)
    assert result.exit_code == 0
    assert vramwise("check", "-", stdin="a: [1").exit_code == 2


BAD_INPUT = {
    "not_yaml": (b"a: [1, 2\nb: 3\n", 1),
    "not_a_mapping": (b"- a\n- b\n", 1),
    "a_scalar": (b"hello\n", 1),
    "empty": (b"", None),
    "tab": (b"a:\n\tb: 1\n", 2),
    "custom_tag": (b"a: 1\nb: !!python/object/apply:os.system ['echo no']\n", 2),
    "unknown_tag": (b"a: !foo bar\n", 1),
    "invalid_utf8": (b"a: 1\nb: \xff\xfe\n", 2),
    "anchor_bomb": (
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 10)) for i in range(8)),
        None,
    ),
    "self_reference": (b"a: &a [*a]\n", None),
    "deep": (b"a: " + b"[" * 5000 + b"]" * 5000 + b"\n", None),
    "wrong_type": (b"base_model: x\nmicro_batch_size: [1, 2]\n", 2),
    "two_documents": (b"a: 1\n---\nb: 2\n", None),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_sentence_with_a_place_and_the_rest_is_checked(vramwise, config, name):
    data, line = BAD_INPUT[name]
    result = vramwise("check", config(data, "bad.yml"), config(GOOD, "good.yml"), "--gpu", "a100", "--format", "json")
    assert result.exit_code == 2
    bad, good = json.loads(result.stdout)["files"]
    assert bad["error"]["message"]
    if line is not None:
        assert bad["error"]["line"] == line
        assert bad["error"]["column"] >= 1
    assert good["error"] is None
    assert good["resolved"]["micro_batch_size"] == 2


def test_a_huge_file_is_refused_without_reading_it(vramwise, config, tmp_path):
    path = tmp_path / "huge.yml"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    result = vramwise("check", path)
    assert result.exit_code == 2
    assert "MiB" in result.stdout


@not_root
def test_an_unreadable_file(vramwise, config):
    path = config(GOOD)
    path.chmod(0)
    assert vramwise("check", path).exit_code == 2


def test_a_missing_file_is_named(vramwise, tmp_path):
    result = vramwise("check", tmp_path / "nothing.yml")
    assert result.exit_code == 2
    assert "nothing.yml" in result.stdout


def test_wrong_types_are_all_reported_at_once(vramwise, config):
    path = config("base_model: x\nmicro_batch_size: [1]\nsequence_len: many\nwarmup_steps: 0.1\n")
    result = vramwise("check", path, "--format", "json")
    assert result.exit_code == 2
    file = json.loads(result.stdout)["files"][0]
    assert sorted(found["key"] for found in file["findings"] if found["rule"] == "wrong-type") == [
        "micro_batch_size",
        "sequence_len",
        "warmup_steps",
    ]
    text = vramwise("check", path).stdout
    assert text.count("micro_batch_size") >= 1


def test_unknown_gpu_gets_suggestions(vramwise, config):
    result = vramwise("check", config(GOOD), "--gpu", "rtx-4900")
    assert result.exit_code == 2
    assert "4090" in str(result.exception)


def test_without_a_card_the_rules_that_need_one_are_listed(vramwise, config):
    file = json.loads(vramwise("check", config(GOOD), "--format", "json").stdout)["files"][0]
    assert {"rule": "bf16-unsupported", "needs": "gpu"} in file["skipped"]
    named = json.loads(vramwise("check", config(GOOD), "--gpu", "t4", "--format", "json").stdout)["files"][0]
    assert {skipped["needs"] for skipped in named["skipped"]} == {"model"}
    assert "rules skipped" in vramwise("check", config(GOOD)).stdout


def test_show_resolved_says_what_happens_and_why(vramwise, config):
    out = vramwise("check", config(GOOD), "--gpu", "t4", "--show-resolved").stdout
    line = next(line for line in out.splitlines() if line.startswith("precision"))
    assert "fp16" in line
    assert "T4" in line
    assert next(line for line in out.splitlines() if line.startswith("micro_batch_size")).endswith("config.yml:8")


def test_a_typo_in_alloc_conf_is_an_error(vramwise, config):
    assert vramwise("check", config(GOOD), "--alloc-conf", "expandable:True").exit_code == 2


def test_alloc_conf_empty_means_torchs_defaults(vramwise, config):
    result = vramwise("check", config(GOOD), "--gpu", "a100", "--alloc-conf", "", "--format", "json")
    assert "allocator-not-expandable" in rules_of(result)
    assert json.loads(result.stdout)["files"][0]["resolved"]["allocator"] == ""


def test_colour_only_on_a_terminal(vramwise, config):
    assert "\x1b" not in vramwise("check", config("base_model: x\nfp16: true\n")).stdout


_OLD = ("--with", "trl==9.0.0")


def test_an_unknown_version_is_said_first_and_what_rests_on_it_is_no_error(vramwise, tmp_path):
    path = tmp_path / "sft.py"
    path.write_text(
        "from trl import SFTConfig, SFTTrainer\n\n"
        'args = SFTConfig(output_dir="out", max_seq_length=512, fp16=True, bf16=True)\n'
        'SFTTrainer("Qwen/Qwen3-0.6B", args=args).train()\n'
    )
    known = vramwise("check", path, "--with", "trl==1.16.0", "--no-predict").output
    assert " error " in known
    said = vramwise("check", path, *_OLD, "--no-predict").output
    newest = known_versions(trl.__file__)[-1]
    assert f"unknown-version: trl 9.0.0 is unknown (treated as {newest})" in said.splitlines()[0]
    assert " error " not in said
    assert "uncertain with trl 9.0.0" in said
    assert "Will not start" not in vramwise("predict", path, *_OLD, "--gpu", "a100-80gb").output


def test_a_key_of_another_known_release_is_no_error_of_an_assumed_version(vramwise, tmp_path):
    path = tmp_path / "sft.yml"
    path.write_text(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/Capybara\noutput_dir: out\n"
        "activation_checkpointing: true\nmax_length: 1024\n"
    )
    words = ("check", path, "--trainer", "trl", "--no-predict")
    assert "unknown-argument" not in vramwise(*words).output
    assumed = vramwise(*words, "--with", "trl==1.15.0").output
    assert "warning unknown-argument: activation_checkpointing is a key of transformers 5.23.0" in assumed
    assert "error unknown-argument" in vramwise(*words, "--with", "transformers==5.22.2").output
    assert "unknown-argument" not in vramwise(*words, "--with", "transformers==5.23.0").output
