"""The machine formats: JSON against its golden file, SARIF against the schema, GitHub's escapes."""

import json
from pathlib import Path

import jsonschema
import pytest

DATA = Path(__file__).parent.parent / "data"
GOLDEN = DATA / "check.golden.json"
TEXT = "base_model: x\nbatch_size: 16\nmicro_batch_size: 2\nfp16: true\nsequence_len: 512\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yml").write_text(TEXT)
    (tmp_path / "broken.yml").write_text("a: [1\n")
    return tmp_path


def test_json_contract(vramwise, project):
    """The golden file is the contract: adding a field changes it on purpose, anything else is a break."""
    words = ("--gpu", "a100", "--torch", "2.11", "--select", "batch-size-set,fp16-full-finetune,fp8-unsupported-card")
    result = vramwise("check", "config.yml", "broken.yml", *words, "--format", "json")
    assert json.loads(result.stdout) == json.loads(GOLDEN.read_text())


def test_json_has_the_promised_names(vramwise, project):
    file = json.loads(vramwise("check", "config.yml", "--format", "json").stdout)["files"][0]
    assert set(file) == {
        "path",
        "trainer",
        "foreign",
        "error",
        "findings",
        "skipped",
        "resolved",
        "stack",
        "predicted",
        "not_predicted",
        "without_figures",
    }
    promised = (
        "micro_batch_size gradient_accumulation_steps gpus effective_batch_size eval_batch_size sequence_len "
        "pad_to_sequence_len sample_packing precision weights_dtype adapter quantization optimizer "
        "gradient_checkpointing attn_implementation allocator"
    )
    assert set(promised.split()) <= set(file["resolved"])
    names = {"rule", "severity", "message", "key", "line", "column", "end_line", "end_column", "fix"}
    assert all(set(found) == names for found in file["findings"])
    fixes = [found["fix"] for found in file["findings"] if found["fix"]]
    assert fixes
    assert all(set(fix) == {"title", "safe", "effect", "why", "edits"} for fix in fixes)


def test_sarif_is_valid(vramwise, project):
    out = vramwise("check", "config.yml", "broken.yml", "--gpu", "t4", "--format", "sarif").stdout
    sarif = json.loads(out)
    jsonschema.validate(sarif, json.loads((DATA / "sarif-2.1.0.schema.json").read_text()))
    run = sarif["runs"][0]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "config.yml"
    assert run["invocations"][0]["executionSuccessful"] is False
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(ids[result["ruleIndex"]] == result["ruleId"] for result in run["results"])


def test_sarif_of_nothing_is_valid(vramwise, project):
    (project / "config.yml").write_text("base_model: x\n")
    out = vramwise("check", "config.yml", "--select", "batch-size-set", "--format", "sarif").stdout
    jsonschema.validate(json.loads(out), json.loads((DATA / "sarif-2.1.0.schema.json").read_text()))


def test_github_annotations(vramwise, project):
    lines = vramwise("check", "config.yml", "broken.yml", "--gpu", "a100", "--format", "github").stdout.splitlines()
    assert any(
        line.startswith("::error file=config.yml,line=4,col=1,endLine=4,endColumn=11,title=vramwise fp16")
        for line in lines
    )
    assert any(line.startswith("::error file=broken.yml,line=") for line in lines)
    assert all(line.startswith("::") for line in lines)


def test_github_escapes():
    from vramwise.render.annotations import _command

    line = _command("error", "a,b:c.yml", {"line": 1}, "x", "50 %\nnext")
    assert line == "::error file=a%2Cb%3Ac.yml,line=1,title=vramwise x::50 %25%0Anext"


def test_a_strangers_control_characters_do_not_reach_the_terminal(vramwise, project):
    (project / "config.yml").write_text('base_model: x\n"fp16": true # \x85\u202e\n')
    out = vramwise("check", "config.yml", "--gpu", "a100").stdout
    assert "\x85" not in out
    assert "\u202e" not in out
