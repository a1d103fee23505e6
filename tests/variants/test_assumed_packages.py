"""What is only assumed of a run's packages, or of its weights, is a doubt; what is stated is none."""

import pytest

from vramwise.opening.options import Options
from vramwise.opening.subject import open_subject
from vramwise.variants.doubts import doubts_of, measurement_doubts

SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=1024, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing=CHECKPOINTING)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out", per_device_train_batch_size=2))
trainer.train()
"""
STATED = ("unsloth==2026.10.9", "torch==2.11.0")


def doubts(folder, *versions, gpu="a100-80gb", checkpointing=True, bits=4):
    file = folder / "train.py"
    file.write_text(SCRIPT.replace("CHECKPOINTING", repr(checkpointing)).replace("load_in_4bit", f"load_in_{bits}bit"))
    subject = open_subject(file, Options(gpu=gpu, versions=versions))
    measured = {*measurement_doubts(subject.run, subject.model)}
    return tuple(one for one in doubts_of(subject.run, subject.model) if one not in measured)


def test_an_assumed_attention_package_has_a_margin(tmp_path):
    (doubt,) = doubts(tmp_path, *STATED)
    assert (doubt.kind, doubt.text) == ("feature", "xformers is assumed to be installed; FlashAttention takes less")
    (kept,) = doubts(tmp_path, *STATED, checkpointing=False)
    assert kept.less > doubt.less > doubt.more > 0
    (old,) = doubts(tmp_path, *STATED, gpu="t4")
    assert old.text.startswith("xformers is assumed to be installed; without it")


@pytest.mark.parametrize("stated", ["xformers==0", "xformers==0.0.35", "flash-attn==2.8.3"])
def test_a_stated_package_is_no_doubt(tmp_path, stated):
    assert not doubts(tmp_path, *STATED, stated)


def test_torch_s_own_kernel_needs_neither(tmp_path):
    assert doubts(tmp_path, "unsloth==2026.10.9", "torch==2.12.0") == ()


def test_an_assumed_release_is_said_without_a_margin(tmp_path):
    (doubt,) = doubts(tmp_path, "torch==2.11.0", "xformers==0.0.35")
    assert (doubt.kind, doubt.more, doubt.less) == ("version", 0.0, 0.0)
    assert doubt.text.startswith("Unsloth 2026.10.9 is assumed")


def test_outliers_of_an_8_bit_base_may_take_more(tmp_path):
    (doubt,) = doubts(tmp_path, *STATED, "xformers==0", bits=8)
    assert "outliers" in doubt.text
    assert doubt.more > doubt.less == 0
