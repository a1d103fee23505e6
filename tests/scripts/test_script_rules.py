"""Rules about scripts beyond their own examples: what they say depends on the release and on what the script does."""

import time

import pytest

from vramwise.api import check, fix, predict
from vramwise.opening.repository import wanted_beside

OPTIONS = {"gpu": "rtx-4090", "text_alone": True}
OLD = """\
!pip install {pin}
from trl import SFTConfig, SFTTrainer
t = SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(max_prompt_length=8, bf16=True), max_seq_length=512)
"""
DPO = """\
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.bfloat16)
reference = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig())
t = DPOTrainer(model, {reference}, args=DPOConfig())
"""


def found(text, **options):
    [report] = check(text, **(options or OPTIONS))
    assert report.error is None
    return {one.rule: one for one in report.findings}


@pytest.mark.parametrize(("pin", "severity"), [("trl==0.12.0", None), ("trl==1.16.0", "error"), ("peft", "warning")])
def test_moved_and_gone_arguments_go_by_the_pinned_release(pin, severity):
    """Without a pin the newest release is assumed, which is no reason to say that the run stops."""
    rules = found(OLD.format(pin=pin))
    for name in ("moved-argument", "unknown-argument"):
        assert (rules[name].severity.value if name in rules else None) == severity


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        ("requirements.txt", "torch\ntrl==0.9.6  # old\n", None),
        ("requirements-train.txt", "trl[peft] >= 0.8, <0.13\n", None),
        ("pyproject.toml", '[project]\ndependencies = ["torch>=2", "trl~=0.12.1"]\n', None),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntrl = "^0.12"\n', None),
        ("environment.yml", "dependencies:\n  - pip:\n    - trl=0.12.2\n", None),
        ("uv.lock", 'version = 1\n[[package]]\nname = "trl"\nversion = "0.12.2"\n', None),
        ("requirements.txt", "# trl==0.9.6\ntrl>=0.9\nmy-trl==0.1\n", "warning"),
        ("notes.txt", "trl==0.9.6\n", "warning"),
    ],
)
def test_a_release_that_the_repository_pins_counts(name, text, severity, tmp_path):
    """What is valid there is no finding; what is assumed to be gone is not deleted as a safe fix."""
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text(OLD.replace("!pip install {pin}\n", ""))
    [report] = check(str(script), gpu="rtx-4090")
    rules = {one.rule: one for one in report.findings}
    for rule in ("moved-argument", "unknown-argument"):
        assert (rules[rule].severity.value if rule in rules else None) == severity
    [fixed] = fix(str(script), gpu="rtx-4090", write=False)
    assert "max_prompt_length=8" in fixed.after.text
    assert not any(one.fix and one.fix.safe for name, one in rules.items() if name == "unknown-argument")


def test_requirements_without_end_are_read_at_once(tmp_path):
    (tmp_path / "requirements.txt").write_text(
        "trl" + " " * 200_000 + "x\n" + "trl " * 100_000 + "\ntrl>=0.1" + ",<9" * 100_000
    )
    before = time.process_time()
    assert wanted_beside(tmp_path, ["trl"])["trl"].bounds[0] == (">=", "0.1")
    assert time.process_time() - before < 2


def test_a_pin_counts_before_the_repository(tmp_path):
    (tmp_path / "requirements.txt").write_text("trl==0.9.6\n")
    script = tmp_path / "train.py"
    script.write_text(OLD.replace("!pip install {pin}\n", ""))
    for pin, gone in (("1.16.0", True), ("0.12.2", False)):
        [report] = check(str(script), gpu="rtx-4090", versions=(f"trl=={pin}",))
        assert ("unknown-argument" in {one.rule for one in report.findings}) == gone


def test_liger_counts_under_its_old_name():
    text = OLD.format(pin="trl==0.12.0").replace("max_prompt_length=8", "{}=True")
    loss = {
        name: predict(text.format(name), **OPTIONS).prediction.run.kernels.loss_kernel
        for name in ("use_liger", "packing")
    }
    assert loss["use_liger"] == "liger_fused_linear" != loss["packing"]


def test_what_only_models_with_experts_do_leaves_no_doubt_for_others():
    assert predict(OLD.format(pin="trl==0.22.2"), **OPTIONS).prediction.bounds is None


def test_a_second_reference_takes_the_weights_again():
    with_one, without = (predict(DPO.format(reference=one), **OPTIONS).needs for one in ("reference", "None"))
    more = with_one.breakdown_bytes["weights"] - without.breakdown_bytes["weights"]
    assert 1.0e9 < more < 1.4e9  # 0.6 billion parameters of two bytes
    assert "reference-beside-adapter" in found(DPO.format(reference="reference"))
    assert "reference-beside-adapter" not in found(DPO.format(reference="None"))


def test_an_argument_is_added_only_to_a_class_that_takes_it():
    """`pad_to_multiple_of` is one of SFTConfig, and none of TrainingArguments."""
    text = (
        "from transformers import TrainingArguments\nfrom trl import SFTTrainer\n"
        't = SFTTrainer("Qwen/Qwen3-0.6B", args=TrainingArguments("out", bf16=True))\n'
    )
    [report] = fix(text, **OPTIONS)
    after = report.after if report.after is not None else report.before
    assert "pad_to_multiple_of" not in after.text
