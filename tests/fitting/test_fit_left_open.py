"""`fit` of a run that is not fully predicted: a range or a question, never "fits" or "does not fit" alone."""

import json
from pathlib import Path

import pytest

from vramwise.opening.options import Options
from vramwise.opening.subject import open_subject
from vramwise.variants.search import finding
from vramwise.verbs.fitting.fastest import fit_subject

SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=512, {load})
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model=model, args=SFTConfig(output_dir="out", per_device_train_batch_size=1)).train()
"""


def test_it_asks_instead_of_saying_that_nothing_fits(vramwise, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(load="fast_inference=True"))
    page = tmp_path / "page.html"
    result = vramwise("fit", str(tmp_path / "train.py"), "--gpu", "t4", "--format", "json", "--html", str(page))
    found = json.loads(result.stdout)
    assert "Unknown whether it fits on T4" in page.read_text()
    assert found["verdict"]["kind"] == "may_fit"
    assert found["verdict"]["text"].startswith("Unknown whether it fits on T4: needs at least")
    assert any(reason.startswith("Not modelled: fast_inference") for reason in found["reasons"])
    assert found["smallest_card"] is None
    # No variant can be said to fit: none is simulated to find one, only what may need less than the file.
    assert found["simulated"] <= 7
    assert not found["ended_early"]


# Two samples are one flattened row with a mask; one sample has none, and goes to torch's plain kernel on a T4.
LARGER_ALONE = """from unsloth import FastModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastModel.from_pretrained("unsloth/LFM2.5-1.2B-Instruct", max_seq_length=2048, load_in_4bit=False)
model = FastModel.get_peft_model(model, r=16)
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=4)
SFTTrainer(model=model, args=args).train()
"""


@pytest.mark.parametrize("few", [1, finding.FEW])
def test_the_closest_never_needs_more_than_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int):
    monkeypatch.setattr(finding, "FEW", few)
    (tmp_path / "train.py").write_text(LARGER_ALONE)
    found = fit_subject(open_subject(tmp_path / "train.py", Options(gpu="t4")), limit_bytes=2_600 * 2**20)
    assert found.best is None
    assert found.closest is not None
    assert (
        found.closest.prediction.needs.highest_reserved_bytes <= found.original.prediction.needs.highest_reserved_bytes
    )
