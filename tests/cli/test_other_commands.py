"""`rules`, `explain`, `gpus`, help and version."""

import json

import vramwise as package


def test_rules_lists_all(vramwise):
    out = vramwise("rules").stdout
    assert out.strip().endswith(f"{len(package.rules())} rules")
    assert "eval-batch-differs" in out
    listed = json.loads(vramwise("rules", "--format", "json").stdout)
    assert {rule["id"] for rule in listed["rules"]} == {rule.id for rule in package.rules()}


def test_the_seven_are_there():
    seven = {
        "batch-size-set",
        "eval-batch-differs",
        "unpadded-sequences",
        "fp16-full-finetune",
        "bf16-unsupported",
        "fp8-without-compile",
        "allocator-not-expandable",
    }
    assert seven <= {rule.id for rule in package.rules()}
    assert len(package.rules()) >= 60


def test_explain(vramwise):
    out = vramwise("explain", "eval-batch-differs").stdout
    assert out.startswith("eval-batch-differs (warning, in other cases info): Evaluation uses a different batch size")
    assert "36.3 GiB" in out
    assert "eval_batch_size: 16" in out
    assert vramwise("explain", "nonsense").exit_code == 2


def test_gpus(vramwise):
    out = vramwise("gpus").stdout
    assert len(out.splitlines()) >= 40
    assert "RTX 4090" in out


def test_help_and_version(vramwise):
    assert "check" in vramwise("--help").stdout
    assert package.__version__ in vramwise("--version").stdout
    assert vramwise("nonsense").exit_code == 2
    assert vramwise("check").exit_code == 2


def test_the_verbs_are_functions_of_the_package(tmp_path):
    path = tmp_path / "c.yml"
    path.write_text("base_model: m\nmicro_batch_size: 2\neval_batch_size: 4\nval_set_size: 0.1\n")
    (report,) = package.check([str(path)], select=("eval-batch-differs",))
    assert [found.rule for found in report.findings] == ["eval-batch-differs"]
    (fixed,) = package.fix([str(path)], select=("eval-batch-differs",))
    assert fixed.changed
    assert package.explain("eval-batch-differs").id == "eval-batch-differs"
