"""What goes wrong in one place loses nothing elsewhere: other findings, other files, other people's YAML."""

from dataclasses import replace

import pytest
import yaml

import vramwise
from opened import check_document, make_target, subject_of_text
from vramwise.api import rules
from vramwise.documents.document import parse_document
from vramwise.errors import InternalError, VramwiseError
from vramwise.render.annotations import render_sarif
from vramwise.rules.discovery import common_rules
from vramwise.rules.judge import judge
from vramwise.trainers.axolotl import trainer as axolotl
from vramwise.verbs.check import FileReport
from vramwise.verbs.fix import fix_subject

CARD = make_target(env={}, look_around=False, gpu="rtx-4090")
LORA = "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_target_linear: true\nmicro_batch_size: 1\n"
FOREIGN = {
    "mkdocs.yml": "site_name: x\nplugins:\n  - search\nliger_rope: true\n",
    "accelerate.yml": "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n  fsdp_version: 1\n",
    "factory.yml": "model_name_or_path: m\noptim: adamw_hf\nbf16: true\nlearning_rate: 5e-5\n",
    "params.yaml": "learning_rate: 5e-5\nbatch_size: 8\nmicro_batch_size: '2'\n",
    "merge.yml": "base_model: m\nmerge_method: ties\ndtype: bfloat16\n",
    "card.yml": "base_model: m\ndatasets:\n  - a\ntags: [x]\n",
    "ludwig.yml": "base_model: m\nadapter:\n  type: lora\n",
}


def document(text):
    return parse_document("c.yml", text.encode())


def rules_of(report):
    return [found.rule for found in report.findings]


@pytest.mark.parametrize(
    ("text", "rank", "rule"),
    [
        (LORA, 8, "lora-without-rank"),
        (LORA + "lora_r: 0\n", 8, "lora-without-rank"),
        (LORA.replace("lora\n", "loar\n", 1), 8, "unknown-adapter"),
        (LORA.replace("lora\n", "loar\n", 1) + "lora_r: 4\n", 4, "unknown-adapter"),
        (LORA + "lora_model_dir: out\n", 8, None),
    ],
)
def test_an_adapter_without_a_rank_is_predicted_with_pefts_own(text, rank, rule):
    report = check_document(document(text), CARD, predicts=True)
    assert "internal-error" not in rules_of(report)
    assert rule is None or rule in rules_of(report)
    assert report.run.adapter.lora_r == rank
    assert report.run.origins["lora_r"].kind == "assumed"


def test_a_prediction_says_which_rank_it_assumes(tmp_path):
    path = tmp_path / "c.yml"
    path.write_text(LORA + "sequence_len: 64\n")
    prediction = vramwise.predict(path, gpu="rtx-4090").prediction
    assert "lora_r is not set: counted with PEFT's own default, 8" in prediction.assumptions


def test_a_rule_that_fails_is_one_finding_among_the_others():
    def broken(run, memory):
        raise ZeroDivisionError("nothing to\ndivide")
        yield

    subject = subject_of_text(LORA, CARD)
    one, *others = (*common_rules(), *subject.trainer.rules())
    findings, _ = judge(subject.run, None, [replace(one, run=broken), *others], subject.trainer.spell)
    assert "lora-without-rank" in [found.rule for found in findings]
    (fault,) = [found for found in findings if found.rule == "internal-error"]
    assert one.id in fault.message
    assert "ZeroDivisionError: nothing to divide" in fault.message
    assert "please report" in fault.message
    render_sarif([FileReport(path="c.yml", findings=findings)], rules())


def test_a_prediction_that_fails_leaves_the_findings(monkeypatch, tmp_path):
    def broken(run, model, **asked):
        raise AssertionError

    monkeypatch.setattr("vramwise.variants.prediction.predict_run", broken)
    path = tmp_path / "c.yml"
    path.write_text(LORA)
    (report,) = vramwise.check(path, gpu="rtx-4090")
    assert {"internal-error", "lora-without-rank"} <= set(rules_of(report))
    assert "AssertionError" in str(report.error), "the exit code must not be that of mere findings"


def test_a_prediction_that_is_refused_leaves_the_findings(monkeypatch):
    def refused(run, model, **asked):
        raise VramwiseError("too large")

    monkeypatch.setattr("vramwise.variants.prediction.predict_run", refused)
    report = check_document(document(LORA), CARD, predicts=True)
    assert {"not-predicted", "lora-without-rank"} <= set(rules_of(report))


def test_predict_tells_a_fault_of_its_own_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr("vramwise.variants.prediction.predict_run", lambda *_, **__: [][1])
    path = tmp_path / "c.yml"
    path.write_text(LORA)
    with pytest.raises(InternalError, match="IndexError") as fault:
        vramwise.predict(path)
    assert "\n" not in str(fault.value)


def test_a_file_on_which_checking_fails_does_not_stop_the_others(monkeypatch, tmp_path):
    for name in ("a.yml", "b.yml"):
        (tmp_path / name).write_text(LORA)
    real = axolotl.TRAINER

    def resolve(document, target, side_files):
        if document.path.endswith("a.yml"):
            raise KeyError("x")
        return real.resolve(document, target, side_files)

    monkeypatch.setattr(axolotl, "TRAINER", replace(real, resolve=resolve))
    first, second = vramwise.check(tmp_path)
    assert "KeyError" in first.error.message
    assert second.findings
    first, second = vramwise.fix(tmp_path, unsafe=True)
    assert not first.changed
    assert second.changed


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_fix_writes_into_training_configs_alone(name, tmp_path):
    path = tmp_path / name
    path.write_text(FOREIGN[name])
    (report,) = vramwise.fix(path, unsafe=True)
    assert path.read_text() == FOREIGN[name]
    assert report.remaining.foreign is not None
    assert not report.remaining.findings


def test_a_folder_is_searched_for_training_configs(tmp_path):
    for name, text in FOREIGN.items():
        (tmp_path / name).write_text(text)
    assert all(report.foreign for report in vramwise.check(tmp_path))
    (tmp_path / "mine.yml").write_text(LORA)
    (mine,) = [report for report in vramwise.check(tmp_path) if not report.foreign]
    assert mine.path.endswith("mine.yml")
    (mended,) = [report for report in vramwise.fix(tmp_path, unsafe=True) if report.changed]
    assert mended.path.endswith("mine.yml")
    assert all((tmp_path / name).read_text() == text for name, text in FOREIGN.items())


@pytest.mark.parametrize("plugins", ["[{a: 1}]", "[x.Y, {a: 1}]", "{a: 1}", "axolotl", "[]", "null"])
def test_a_plugin_is_listed_once(plugins):
    text = f"base_model: m\nmicro_batch_size: 1\nplugins: {plugins}\nliger_rope: true\n"
    mended = fix_subject(subject_of_text(text, CARD), unsafe=True).subject
    once = mended.document
    assert fix_subject(mended, unsafe=True).subject.document.text == once.text
    assert once.text.count("LigerPlugin") <= 1
    written = yaml.safe_load(plugins)
    if isinstance(written, dict):
        assert once.values["plugins"] == written, "what stands there is not overwritten"
