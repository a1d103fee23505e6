"""What goes wrong in one place loses nothing elsewhere: other findings, other files, other people's YAML."""

from dataclasses import replace

import pytest
import yaml
from vramwise.trainers.axolotl.recognise_old import is_training_config

import vramwise
from vramwise import figures as forecasting
from vramwise import judging as checking
from vramwise.documents.document import parse_document
from vramwise.errors import InternalError, VramwiseError
from vramwise.judging import check_document
from vramwise.mending import mend
from vramwise.render.sarif import render_sarif
from vramwise.rules import RULES
from vramwise.targets import make_target

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
    assert report.run.lora_r == rank
    assert report.run.origins["lora_r"].kind == "assumed"


def test_a_prediction_says_which_rank_it_assumes(tmp_path):
    path = tmp_path / "c.yml"
    path.write_text(LORA + "sequence_len: 64\n")
    prediction = vramwise.predict(path, vramwise.Options(gpu="rtx-4090"))
    assert "lora_r is not set: counted with PEFT's own default, 8" in prediction.assumptions


def test_a_rule_that_fails_is_one_finding_among_the_others():
    def broken(run, memory):
        raise ZeroDivisionError("nothing to\ndivide")
        yield

    one, *others = RULES
    report = check_document(document(LORA), CARD, [replace(one, run=broken), *others])
    assert "lora-without-rank" in rules_of(report)
    (fault,) = [found for found in report.findings if found.rule == "internal-error"]
    assert one.id in fault.message
    assert "ZeroDivisionError: nothing to divide" in fault.message
    assert "please report" in fault.message
    render_sarif([report])


def test_a_prediction_that_fails_leaves_the_findings(monkeypatch, tmp_path):
    def broken(run, model):
        raise AssertionError

    monkeypatch.setattr(forecasting, "forecast", broken)
    path = tmp_path / "c.yml"
    path.write_text(LORA)
    (report,) = vramwise.check(path, vramwise.Options(gpu="rtx-4090"))
    assert {"internal-error", "lora-without-rank"} <= set(rules_of(report))
    assert "AssertionError" in str(report.error), "the exit code must not be that of mere findings"


def test_a_prediction_that_is_refused_leaves_the_findings(monkeypatch):
    def refused(run, model):
        raise VramwiseError("too large")

    monkeypatch.setattr(forecasting, "forecast", refused)
    report = check_document(document(LORA), CARD, predicts=True)
    assert {"not-predicted", "lora-without-rank"} <= set(rules_of(report))


def test_predict_tells_a_fault_of_its_own_in_a_line(monkeypatch, tmp_path):
    from vramwise.variants import prediction as predicting

    monkeypatch.setattr(predicting, "predict_run", lambda *_, **__: [][1])
    path = tmp_path / "c.yml"
    path.write_text(LORA)
    with pytest.raises(InternalError, match="IndexError") as fault:
        vramwise.predict(path)
    assert "\n" not in str(fault.value)


def test_a_file_on_which_checking_fails_does_not_stop_the_others(monkeypatch, tmp_path):
    for name in ("a.yml", "b.yml"):
        (tmp_path / name).write_text(LORA)
    real = checking.resolve

    def resolve(document, target):
        if document.path.endswith("a.yml"):
            raise KeyError("x")
        return real(document, target)

    monkeypatch.setattr(checking, "resolve", resolve)
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
    assert not is_training_config(document(FOREIGN[name]))
    (report,) = vramwise.fix(path, unsafe=True)
    assert path.read_text() == FOREIGN[name]
    assert rules_of(report.remaining)[0] == "not-a-training-config"


def test_a_folder_is_searched_for_training_configs(tmp_path):
    for name, text in FOREIGN.items():
        (tmp_path / name).write_text(text)
    (report,) = vramwise.check(tmp_path)
    assert "none is a training config" in report.error.message
    (tmp_path / "mine.yml").write_text(LORA)
    (report,) = vramwise.check(tmp_path)
    assert report.path.endswith("mine.yml")
    (report,) = vramwise.fix(tmp_path, unsafe=True)
    assert report.changed
    assert all((tmp_path / name).read_text() == text for name, text in FOREIGN.items())
    named = tmp_path / "mkdocs.yml"
    assert {report.path for report in vramwise.check([tmp_path, named])} == {str(named), str(tmp_path / "mine.yml")}


@pytest.mark.parametrize("plugins", ["[{a: 1}]", "[x.Y, {a: 1}]", "{a: 1}", "axolotl", "[]", "null"])
def test_a_plugin_is_listed_once(plugins):
    def findings(changed):
        return check_document(changed, CARD).findings

    before = document(f"base_model: m\nmicro_batch_size: 1\nplugins: {plugins}\nliger_rope: true\n")
    once = mend(before, findings, unsafe=True).document
    assert mend(once, findings, unsafe=True).document.text == once.text
    assert once.text.count("LigerPlugin") <= 1
    written = yaml.safe_load(plugins)
    if isinstance(written, dict):
        assert once.values["plugins"] == written, "what stands there is not overwritten"
