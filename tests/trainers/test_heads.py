"""Scripts whose model is not a plain language model: heads for classes, encoders, an encoder with a decoder."""

import json

import pytest

HEAD = """from transformers import {cls}, {trainer}, {trainer_args}
model = {cls}.from_pretrained("{name}"{more})
args = {trainer_args}("out", per_device_train_batch_size=16, bf16=True, num_train_epochs=1, learning_rate=2e-5)
{trainer}(model=model, args=args, train_dataset=ds).train()
"""
CUT = """from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("{name}")
def cut(row):
    made = tok(row["text"], max_length={width}, truncation=True)
    {labels}
    return made
"""
PLAIN = {"trainer": "Trainer", "trainer_args": "TrainingArguments"}
SEQ2SEQ = {"trainer": "Seq2SeqTrainer", "trainer_args": "Seq2SeqTrainingArguments"}
CLASSES = "AutoModelForSequenceClassification"


@pytest.fixture
def predicted(tmp_path, vramwise):
    def predict(text, *words):
        path = tmp_path / "train.py"
        path.write_text(text)
        found = vramwise("predict", path, "--gpu", "a100-80gb", "--offline", "--format", "json", *words)
        assert found.exit_code in (0, 1), found.output
        return json.loads(found.stdout)

    return predict


def resolved(tmp_path, vramwise, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    found = vramwise("check", path, "--gpu", "a100-80gb", "--format", "json")
    return json.loads(found.stdout)["files"][0]["resolved"]


def test_a_head_for_classes_has_no_logits_of_the_vocabulary(predicted):
    cut = CUT.format(name="Qwen/Qwen2.5-0.5B", width=512, labels="")
    classes = predicted(cut + HEAD.format(cls=CLASSES, name="Qwen/Qwen2.5-0.5B", more=", num_labels=3", **PLAIN))
    tokens = predicted(cut + HEAD.format(cls="AutoModelForCausalLM", name="Qwen/Qwen2.5-0.5B", more="", **PLAIN))
    assert "logits" not in classes["breakdown"] or classes["breakdown"]["logits"] < 2**20
    vocabulary = 16 * 512 * 151936 * 4
    assert tokens["peak_allocated_bytes"] - classes["peak_allocated_bytes"] > vocabulary


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "distilbert-base-uncased"])
def test_an_encoder_has_fp32_weights_and_rows_of_its_positions(tmp_path, vramwise, name):
    found = resolved(tmp_path, vramwise, HEAD.format(cls=CLASSES, name=name, more="", **PLAIN))
    assert (found["objective"], found["class_labels"], found["weights_dtype"]) == ("classes", 2, "fp32")
    assert found["sequence_len"] == 512


def test_a_length_that_the_script_names_stays(tmp_path, vramwise):
    text = CUT.format(name="bert-base-uncased", width=128, labels="")
    text += HEAD.format(cls="AutoModelForTokenClassification", name="bert-base-uncased", more=", num_labels=9", **PLAIN)
    found = resolved(tmp_path, vramwise, text)
    assert (found["objective"], found["class_labels"], found["sequence_len"]) == ("token_classes", 9, 128)


@pytest.mark.parametrize(("padding", "padded"), [('"max_length"', True), ("True", False)])
def test_rows_that_the_tokenizer_fills_have_one_width(tmp_path, vramwise, padding, padded):
    cut = CUT.format(name="Qwen/Qwen2.5-0.5B", width=512, labels="").replace(
        "truncation=True", f"truncation=True, padding={padding}"
    )
    text = cut + HEAD.format(cls=CLASSES, name="Qwen/Qwen2.5-0.5B", more="", **PLAIN)
    found = resolved(tmp_path, vramwise, text)
    assert (found["constant_shapes"], found["pad_to_sequence_len"]) == (padded, padded)
    said = vramwise("predict", tmp_path / "train.py", "--gpu", "rtx-4090").output
    assert ("row lengths: simulated with full and mixed rows" in said) is not padded
    beside = f"{cut}def other(row):\n    return tok(row, truncation=True, max_length=512)\n"
    assert not resolved(tmp_path, vramwise, text.replace(cut, beside))["constant_shapes"]


def test_the_shorter_length_is_what_the_decoder_writes(tmp_path, vramwise):
    labels = 'made["labels"] = tok(row["summary"], max_length=64, truncation=True)["input_ids"]'
    text = CUT.format(name="google/flan-t5-base", width=512, labels=labels)
    text += HEAD.format(cls="AutoModelForSeq2SeqLM", name="google/flan-t5-base", more="", **SEQ2SEQ)
    found = resolved(tmp_path, vramwise, text)
    assert (found["sequence_len"], found["target_len"], found["objective"]) == (512, 64, "tokens")


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("AutoModelForSeq2SeqLM", "t5-base"),
        ("AutoModelForSeq2SeqLM", "facebook/bart-base"),
        ("WhisperForConditionalGeneration", "openai/whisper-small"),
    ],
)
def test_an_encoder_with_a_decoder_is_priced(predicted, cls, name):
    found = predicted(HEAD.format(cls=cls, name=name, more="", **SEQ2SEQ))
    assert found["peak_allocated_bytes"] > 2**30
    assert found["breakdown"]["logits"] > 2**20


def test_before_it_had_a_fused_kernel_t5_wrote_its_scores_out(predicted):
    text = HEAD.format(cls="AutoModelForSeq2SeqLM", name="t5-base", more="", **SEQ2SEQ)
    old, new = predicted(text, "--with", "transformers==5.6.0"), predicted(text, "--with", "transformers==5.20.1")
    assert old["peak_allocated_bytes"] > new["peak_allocated_bytes"]


def test_fit_finds_a_variant_of_an_encoder_with_a_decoder(tmp_path, vramwise):
    text = CUT.format(name="t5-base", width=512, labels="")
    text += HEAD.format(cls="AutoModelForSeq2SeqLM", name="t5-base", more="", **SEQ2SEQ)
    path = tmp_path / "train.py"
    path.write_text(text)
    found = json.loads(vramwise("fit", path, "--gpu", "t4", "--offline", "--format", "json").stdout)
    assert found["best"]["changes"]
    assert found["best"]["fits"]
