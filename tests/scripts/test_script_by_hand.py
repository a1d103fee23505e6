"""`fit` on a script whose batch comes from its command line: simulated, shown as text, never written."""

import json

import pytest

from vramwise.page.answers import Answers

SCRIPT = """import argparse
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()
config = SFTConfig(
    output_dir="out",
    per_device_train_batch_size=args.batch,
    gradient_accumulation_steps=1,
    max_length=512,
    packing=True,
    gradient_checkpointing=True,
    bf16=True,
)
SFTTrainer(model="HuggingFaceTB/SmolLM2-135M", args=config, train_dataset=data).train()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.usefixtures("short_searches")
def test_a_computed_value_is_changed_by_hand(vramwise, script):
    found = json.loads(vramwise("fit", script, "--gpu", "4GB", "--format", "json").stdout)["best"]
    assert found["fits"]
    assert any(
        "'per_device_train_batch_size' is set by the command line: pass --batch " in one for one in found["by_hand"]
    )
    assert any(one.startswith(f"python {script} --batch ") for one in found["commands"])
    assert "gradient_accumulation_steps" in {edit["key"] for edit in found["edits"]}
    assert "per_device_train_batch_size" not in {edit["key"] for edit in found["edits"]}
    shown = vramwise("fit", script, "--gpu", "4GB").stdout
    assert "\nChange by hand\n" in shown
    assert "--write" not in shown


@pytest.mark.usefixtures("short_searches")
def test_what_is_left_to_a_person_is_not_half_written(vramwise, script):
    done = vramwise("fit", script, "--gpu", "4GB", "--write")
    assert done.exit_code == 2
    assert "pass --batch " in str(done.exception)
    assert script.read_text() == SCRIPT
    fixed = vramwise("fix", "--fit", script, "--gpu", "4GB")
    assert "not written: 'per_device_train_batch_size'" in fixed.output
    assert "per_device_train_batch_size=args.batch,\n    gradient_accumulation_steps=1," in script.read_text()


@pytest.mark.usefixtures("short_searches")
def test_the_page_leaves_the_script_as_it_is_too():
    found = json.loads(Answers().answer(json.dumps({"ask": "fit", "text": SCRIPT, "settings": {"gpu": "4GB"}})))
    assert found["text"] == SCRIPT
    assert any("pass --batch " in one for one in found["commands"])


@pytest.mark.usefixtures("short_searches")
def test_every_remedy_of_train_says_what_to_change(vramwise, script):
    done = vramwise("train", script, "--gpu", "4GB", "--torch", "2.13")
    assert done.exit_code == 1
    lines = done.output.split("changes that keep the training result:\n")[1].splitlines()
    offered = [line.split("fits", 1)[1].strip() for line in lines if "  fits  " in line]
    assert offered
    assert all(offered)
    assert any("'per_device_train_batch_size' is set by the command line: pass --batch " in one for one in offered)
