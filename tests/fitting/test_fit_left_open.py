"""`fit` of a run that is not fully predicted: a range or a question, never "fits" or "does not fit" alone."""

import json

SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=512, {load})
model = FastLanguageModel.get_peft_model(model, r=16)
SFTTrainer(model=model, args=SFTConfig(output_dir="out", per_device_train_batch_size=1)).train()
"""


def test_it_asks_instead_of_saying_that_nothing_fits(vramwise, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(load="fast_inference=True"))
    result = vramwise("fit", str(tmp_path / "train.py"), "--gpu", "t4", "--format", "json")
    found = json.loads(result.stdout)
    assert found["verdict"]["kind"] == "may_fit"
    assert found["verdict"]["text"].startswith("Unknown whether it fits on T4: needs at least")
    assert any(reason.startswith("Not modelled: fast_inference") for reason in found["reasons"])
