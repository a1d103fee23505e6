"""`predict --data` for TRL and LLaMA-Factory: widths of packed batches and labels come from the data."""

import json

import pytest

from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.variants.batches import train_shapes

TRL = """\
model_name_or_path: HuggingFaceTB/SmolLM2-135M
dataset_name: some/data
use_peft: true
packing: {packing}
max_length: 512
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
attn_implementation: flash_attention_2
output_dir: out
"""


@pytest.fixture
def data(tmp_path):
    rows = [
        {"prompt": "p" * (number * 37 % 400 + 20), "completion": "c" * (number * 91 % 900 + 20)} for number in range(24)
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def predicted(vramwise, tmp_path, text, *words):
    (tmp_path / "config.yml").write_text(text)
    result = vramwise(
        "predict", tmp_path / "config.yml", *words, "--steps", "3", "--format", "json", "--alloc-conf", ""
    )
    return json.loads(result.stdout)


def test_packed_widths_come_from_the_data(vramwise, tmp_path, data):
    text = TRL.format(packing="true")
    full, real = predicted(vramwise, tmp_path, text), predicted(vramwise, tmp_path, text, "--data", data)
    assert real["peak_allocated_bytes"] <= full["peak_allocated_bytes"]
    assert real["peak_reserved_bytes"] != full["peak_reserved_bytes"]
    assert any("batches of varying width" in note for note in full["assumptions"])
    assert not any("batches of varying width" in note for note in real["assumptions"])
    said = [note for note in real["assumptions"] if note.startswith("labels:")]
    assert len(said) == 1
    assert 55 <= int(said[0].split()[1].removesuffix("%")) <= 75


@pytest.mark.parametrize(
    ("more", "share"), [("", 0.6), ("completion_only_loss: false\n", None), ("assistant_only_loss: true\n", 0.6)]
)
def test_what_is_labelled_is_what_the_file_says(tmp_path, data, more, share):
    subject = open_subject(Text(TRL.format(packing="false") + more), Options(gpus=1)).with_data(str(data))
    shapes = train_shapes(subject.run, subject.data.train)
    labelled, tokens = (sum(getattr(shape, name) or 0 for shape in shapes) for name in ("labelled", "tokens"))
    if share is None:
        assert labelled == 0  # all that is no padding, which the shapes say
    else:
        assert labelled / tokens == pytest.approx(share, abs=0.05)
