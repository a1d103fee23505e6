"""The format of data, by its columns."""

import json

import pytest

from vramwise.errors import VramwiseError
from vramwise.opening.data.formats import recognise_data

TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]


def recognised(tmp_path, *rows, name="data.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(map(json.dumps, rows)))
    return recognise_data(str(path))


@pytest.mark.parametrize(
    ("row", "kind", "columns"),
    [
        ({"instruction": "a", "output": "b"}, "alpaca", {"instruction", "output"}),
        ({"instruction": "a", "input": "", "response": "b"}, "alpaca", {"instruction", "input", "response"}),
        ({"messages": TURNS, "id": 1}, "chat", {"messages"}),
        ({"prompt": "a", "completion": "b"}, "prompt", {"prompt", "completion"}),
        ({"question": "a", "answer": "b"}, "prompt", {"question", "answer"}),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "pairs", {"prompt", "chosen", "rejected"}),
        ({"chosen": TURNS, "rejected": TURNS}, "pairs", {"chosen", "rejected"}),
        ({"text": "a", "url": "b"}, "text", {"text"}),
    ],
)
def test_columns_decide(tmp_path, row, kind, columns):
    found = recognised(tmp_path, row, row)
    assert found.format == kind
    assert set(found.columns.values()) == columns


def test_who_speaks_is_read_from_the_messages(tmp_path):
    said = [{"from": "system", "value": "x"}, {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    found = recognised(tmp_path, {"conversations": said})
    assert (found.role, found.content, found.speakers) == ("from", "value", ("human", "gpt"))


def test_an_optional_column_counts_where_any_row_has_it(tmp_path):
    found = recognised(tmp_path, {"instruction": "a", "output": "b"}, {"instruction": "a", "input": "c", "output": "b"})
    assert found.columns["input"] == "input"


def test_csv_is_read_and_named(tmp_path):
    (tmp_path / "data.csv").write_text("prompt,completion\na,b\n")
    found = recognise_data(str(tmp_path / "data.csv"))
    assert (found.kind, found.format, found.folder) == ("csv", "prompt", False)


@pytest.mark.parametrize("rows", [[{"foo": "bar"}], [{"foo": "bar"}, {"prompt": "b", "completion": "c"}]])
def test_what_is_no_format_is_refused(tmp_path, rows):
    with pytest.raises(VramwiseError, match="Known formats: alpaca"):
        recognised(tmp_path, *rows)


def test_rated_answers_are_no_prompts_and_completions(tmp_path):
    file = tmp_path / "kto.jsonl"
    file.write_text('{"prompt": "Say it", "completion": "no", "label": false}\n')
    with pytest.raises(VramwiseError, match=r"rates its answers \(label\): that is data for KTO"):
        recognise_data(str(file))


def test_rows_of_two_formats_are_named(tmp_path):
    file = tmp_path / "mixed.jsonl"
    file.write_text('{"text": "one"}\n{"text": "two"}\n{"prompt": "Say it", "completion": "yes"}\n')
    with pytest.raises(VramwiseError, match="row 1 has text, row 3 has prompt, completion"):
        recognise_data(str(file))
