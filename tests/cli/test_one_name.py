"""A run that fits only with shorter rows than assumed has one name on every interface: "May not fit"."""

import json
import re

import pytest

SCRIPT = """\
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", per_device_train_batch_size=16, max_length=2048, bf16=True)
peft = LoraConfig(r=16, target_modules="all-linear")
train = load_dataset("trl-lib/Capybara", split="train")
SFTTrainer(model="Qwen/Qwen2.5-1.5B", args=args, train_dataset=train, peft_config=peft).train()
"""
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 15.99 GiB"
CARD = ("--gpu", "rtx-4060-ti-16gb")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_predict_names_it_so_for_the_card_for_others_and_for_changes(vramwise, script):
    changes = ("--what-if", "learning_rate=1e-4", "--what-if", "learning_rate=2e-4")
    result = vramwise("predict", script, *CARD, "--cards", *changes)
    assert result.exit_code == 1
    first, *_ = result.output.splitlines()
    assert first.startswith("? May not fit: ")
    assert "It fits if no row exceeds about" in result.output
    assert re.search(r"RTX 4080 +may not fit\n", result.output)
    assert re.search(r"as it is .* may not fit\n", result.output)
    assert re.search(r"learning_rate=2e-4 .* may not fit\n", result.output)
    found = json.loads(vramwise("predict", script, *CARD, "--cards", *changes, "--format", "json").output)
    assert found["verdict"]["kind"] == "may_fit"
    assert [one["verdict"]["kind"] for one in found["what_ifs"]] == ["may_fit"] * 2
    assert next(one for one in found["cards"] if one["gpu"] == "RTX 4080")["kind"] == "may_fit"
    assert found["range"]["lower_bytes"] < found["capacity_bytes"] < found["range"]["upper_bytes"]


def test_check_fit_and_diagnose_name_it_so(vramwise, script):
    checked = vramwise("check", script, *CARD, "--select", "does-not-fit").output
    assert "does-not-fit: May not fit: " in checked
    assert ": may not fit" in checked.splitlines()[-1]
    fitted = vramwise("fit", script, *CARD).output
    assert "your file may not fit" in fitted.splitlines()[0]
    assert re.search(r"Your original file may not fit: .*it fits if no row exceeds about", " ".join(fitted.split()))
    assert "your original file (may not fit)" in " ".join(fitted.split())
    log = script.with_name("train.log")
    log.write_text(LOG)
    said = vramwise("diagnose", log, "--config", script, *CARD).output
    assert re.search(r"predicted: .* reserved of .*: may not fit", said)


def test_no_safe_fix_fills_rows_that_do_not_fit_when_full(vramwise, script):
    found = json.loads(vramwise("check", script, *CARD, "--format", "json").output)["files"][0]["findings"]
    (padding,) = [one for one in found if one["rule"] == "unpadded-sequences"]
    assert padding["fix"]["safe"] is False
    roomy = json.loads(vramwise("check", script, "--gpu", "22GB", "--format", "json").stdout)["files"][0]
    assert [one["fix"]["safe"] for one in roomy["findings"] if one["rule"] == "unpadded-sequences"] == [True]
