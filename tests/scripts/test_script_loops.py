"""Training loops without a Trainer: read where the model is named, otherwise answered with the line to paste."""

import pytest

import vramwise

LOOP = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(NAME)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def collate(rows):
    return tokenizer(rows, max_length=256, padding="max_length", truncation=True, return_tensors="pt")

loader = DataLoader(texts, batch_size=3, collate_fn=collate)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch, labels=batch["input_ids"]).loss)
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture
def loop(tmp_path):
    def written(name, text=LOOP):
        path = tmp_path / "loop.py"
        path.write_text(text.replace("NAME", name))
        return path

    return written


def test_a_loop_is_read(loop):
    answer = vramwise.predict(loop("'Qwen/Qwen2.5-0.5B'"), gpu="rtx-4090")
    run = answer.prediction.run
    assert run.base_model == "Qwen/Qwen2.5-0.5B"
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.shapes.sequence_len) == (3, 2, 256)
    assert (run.precision.compute, run.precision.weights_dtype) == ("bf16", "fp32")
    assert (run.optimizer.name, run.optimizer.max_grad_norm) == ("sgd", 0.0)
    assert any(note.startswith("the loop: no Trainer runs it") for note in answer.prediction.assumptions)


def test_autocast_and_clipping_count(loop):
    text = (
        LOOP.replace('mixed_precision="bf16", ', "")
        + """
with torch.autocast("cuda", dtype=torch.bfloat16):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""
    )
    run = vramwise.predict(loop("'Qwen/Qwen2.5-0.5B'", text), gpu="rtx-4090").prediction.run
    assert (run.precision.compute, run.precision.autocast, run.optimizer.max_grad_norm) == ("bf16", True, 1.0)


def test_a_loop_whose_model_is_set_at_run_time_gets_the_line_to_paste(loop):
    path = loop("arguments.model")
    with pytest.raises(vramwise.VramwiseError, match=r"line 7.*vramwise\.predict\(model=model, optimizer=optimizer"):
        vramwise.predict(path, gpu="rtx-4090")
    assert vramwise.predict(path, model="Qwen/Qwen2.5-0.5B", gpu="rtx-4090").prediction.run.batch.micro_batch_size == 3


def test_source_without_a_loop_is_no_training(loop):
    with pytest.raises(vramwise.VramwiseError, match="name the file with the call that creates the trainer"):
        vramwise.predict(loop("'gpt2'", "import torch\nprint(NAME)\n"))
