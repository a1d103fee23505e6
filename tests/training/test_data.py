"""Datasets: types, masks, lengths, splits and files."""

import csv
import json

import pytest

from installed import Later, need, needs
from tiny_runs import EXAMPLE, make_folder, prepared, write_config
from vramwise.errors import VramwiseError
from vramwise.training.worker.prompts import IGNORED, PromptSettings, samples_of

pytestmark = needs("transformers")
transformers = Later("transformers")
data = Later("vramwise.training.worker.data")

BOS, EOS = 1, 2


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(EXAMPLE / "model")


def sample(tokenizer, row, kind, *, length=512, train_on_inputs=False, **block):
    settings = PromptSettings(sequence_len=length, train_on_inputs=train_on_inputs)
    return list(samples_of(row, {"path": "p", "type": kind, **block}, tokenizer, settings))


def trained_text(tokenizer, found):
    return tokenizer.decode([label for label in found.labels if label != IGNORED])


def test_alpaca_trains_on_the_answer_and_its_end(tokenizer):
    row = {"instruction": "Add.", "input": "one and two", "output": "three"}
    (found,) = sample(tokenizer, row, "alpaca")
    assert found.input_ids[0] == BOS
    assert found.input_ids[-1] == EOS
    assert trained_text(tokenizer, found) == "three</s>"
    text = tokenizer.decode(list(found.input_ids))
    assert text.endswith("### Instruction:\nAdd.\n\n### Input:\none and two\n\n### Response:\nthree</s>")
    (without,) = sample(tokenizer, {**row, "input": ""}, "alpaca")
    assert "### Input" not in tokenizer.decode(list(without.input_ids))


def test_train_on_inputs_trains_on_all_but_the_first_token(tokenizer):
    row = {"instruction": "Add.", "input": "", "output": "three"}
    (found,) = sample(tokenizer, row, "alpaca", train_on_inputs=True)
    assert found.labels[0] == IGNORED
    assert found.labels[1:] == found.input_ids[1:]


def test_a_long_completion_becomes_several_samples(tokenizer):
    found = sample(tokenizer, {"text": "one two three four five six seven"}, "completion", length=4)
    assert len(found) > 1
    assert all(len(one) <= 4 for one in found)
    assert tokenizer.decode([t for one in found for t in one.input_ids]) == "<s>one two three four five six seven</s>"


def test_input_output_trains_on_labelled_segments(tokenizer):
    segments = [{"label": False, "text": "one two"}, {"label": True, "text": " three"}]
    (found,) = sample(tokenizer, {"segments": segments}, "input_output")
    assert trained_text(tokenizer, found) == " three"


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three?"},
    {"role": "assistant", "content": "four"},
]


def test_chat_trains_on_the_assistants_turns_and_their_ends(tokenizer):
    (found,) = sample(tokenizer, {"messages": CHAT}, "chat_template", chat_template="chatml")
    assert trained_text(tokenizer, found) == "two<|im_end|>four<|im_end|>"
    assert tokenizer.decode(list(found.input_ids)).startswith("<|im_start|>system\nBe brief.<|im_end|>\n")


def test_messages_are_a_chat_in_chatml(tokenizer):
    assert sample(tokenizer, {"messages": CHAT}, "messages") == sample(
        tokenizer, {"messages": CHAT}, "chat_template", chat_template="chatml"
    )


def test_chat_fields_and_roles_can_be_named(tokenizer):
    turns = [{"from": "human", "value": "one?"}, {"from": "gpt", "value": "two"}]
    block = {"field_messages": "turns", "message_property_mappings": {"role": "from", "content": "value"}}
    (found,) = sample(tokenizer, {"turns": turns}, "chat_template", chat_template="chatml", **block)
    assert trained_text(tokenizer, found) == "two<|im_end|>"
    (other,) = sample(
        tokenizer, {"turns": turns}, "chat_template", chat_template="chatml", roles_to_train=["user"], **block
    )
    assert "one?" in trained_text(tokenizer, other)
    assert "two" not in trained_text(tokenizer, other)


def test_a_template_that_rewrites_earlier_turns_is_refused(tokenizer):
    """The whole must begin with each part, or nobody can say which tokens belong to which turn."""
    rewriting = "{{ messages | length }}{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}"
    with pytest.raises(VramwiseError, match="turn by turn"):
        sample(tokenizer, {"messages": CHAT}, "chat_template", chat_template="jinja", chat_template_jinja=rewriting)


def test_a_missing_column_is_named(tokenizer):
    with pytest.raises(VramwiseError, match="no 'output'; it has instruction, question"):
        sample(tokenizer, {"instruction": "a", "question": "b"}, "alpaca")


def load(folder, tokenizer, **changes):
    return data.load_data(prepared(write_config(folder, **changes)).run, tokenizer, seed=7)


def test_long_samples_are_dropped_cut_or_refused(tmp_path, tokenizer):
    folder = make_folder(tmp_path, samples=4)
    rows = [{"instruction": "a", "output": "one"}, {"instruction": "b", "output": "one " * 300}]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    block = [{"path": "samples.jsonl", "type": "alpaca"}]
    dropped = load(folder, tokenizer, datasets=block)
    assert len(dropped.train) == 1
    assert "1 of 2 training samples: longer than 64 tokens (dropped)" in dropped.notes
    assert len(load(folder, tokenizer, datasets=block, excess_length_strategy="truncate").train) == 2
    with pytest.raises(VramwiseError, match="sequence_len is 64"):
        load(folder, tokenizer, datasets=block, excess_length_strategy="raise")


@pytest.mark.parametrize(("size", "held"), [(0.25, 10), (3, 3)])
def test_a_part_is_held_out_by_the_seed(tmp_path, tokenizer, size, held):
    folder = make_folder(tmp_path, samples=40)
    first, again = (load(folder, tokenizer, val_set_size=size) for _ in range(2))
    assert (len(first.train), len(first.evaluation)) == (40 - held, held)
    assert [one.input_ids for one in first.evaluation] == [one.input_ids for one in again.evaluation]
    whole = load(folder, tokenizer)
    assert sorted(one.input_ids for one in whole.train) == sorted(
        one.input_ids for one in (*first.train, *first.evaluation)
    )


def test_test_datasets_are_the_evaluation(tmp_path, tokenizer):
    folder = make_folder(tmp_path, samples=8)
    (folder / "held.jsonl").write_text('{"text": "four five six"}\n')
    data = load(folder, tokenizer, test_datasets=[{"path": "held.jsonl", "type": "completion"}])
    assert (len(data.train), len(data.evaluation)) == (8, 1)


def test_json_csv_and_parquet_give_the_same_samples(tmp_path, tokenizer):
    folder = make_folder(tmp_path, samples=6)
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    (folder / "list.json").write_text(json.dumps(rows))
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text"])
        writer.writeheader()
        writer.writerows(rows)
    names = ["samples.jsonl", "list.json", "rows.csv"]
    try:
        import datasets
    except ImportError:
        pass
    else:
        datasets.Dataset.from_list(rows).to_parquet(str(folder / "rows.parquet"))
        names.append("rows.parquet")
    found = [load(folder, tokenizer, datasets=[{"path": name, "type": "completion"}]).train for name in names]
    assert all([one.input_ids for one in other] == [one.input_ids for one in found[0]] for other in found)


def test_separators_inside_a_string_do_not_end_a_row(tmp_path, tokenizer):
    folder = make_folder(tmp_path, samples=4)
    rows = [{"text": f"one{mark}two"} for mark in ("\u2028", "\x85", "\u2029")]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows)
    (folder / "samples.jsonl").write_text(text, encoding="utf-8", newline="")
    assert len(load(folder, tokenizer).train) == 3


def test_a_slice_of_a_local_file(tmp_path, tokenizer):
    need("datasets")
    folder = make_folder(tmp_path, samples=8)
    block = {"path": "samples.jsonl", "type": "completion", "split": "train[:50%]"}
    assert len(load(folder, tokenizer, datasets=[block]).train) == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.jsonl", None, "does not exist"),
        ("bad.jsonl", '{"text": "one"}\n{"text": \n', "bad.jsonl:2: not JSON"),
        ("list.jsonl", "3\n", "row 1 is not a JSON object"),
        ("empty.jsonl", "", "no training sample is left"),
    ],
)
def test_unusable_files_say_what_is_wrong(tmp_path, tokenizer, name, text, message):
    folder = make_folder(tmp_path, samples=4)
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(VramwiseError, match=message):
        load(folder, tokenizer, datasets=[{"path": name, "type": "completion"}])
