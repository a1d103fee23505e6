"""A document that is JSON stays JSON, whatever is edited."""

import json

import pytest

from vramwise.documents.document import parse_document
from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.rules.base import delete_key, insert_key, set_key

LINES = (
    '{\n  "output_dir": "x",\n  "per_device_train_batch_size": 8,\n  "fsdp_config": {"version": 2},\n  "empty": {}\n}\n'
)
ONE_LINE = '{"output_dir": "x", "per_device_train_batch_size": 8, "fsdp_config": {"version": 2}, "empty": {}}'
EDITS = {
    "set": (set_key("per_device_train_batch_size", 4), ("per_device_train_batch_size", 4)),
    "set text": (set_key("output_dir", 'a "b"'), ("output_dir", 'a "b"')),
    "insert": (insert_key("optim", "adamw_bnb_8bit", beside="output_dir"), ("optim", "adamw_bnb_8bit")),
    "insert last": (insert_key("bf16", True, beside="empty"), ("bf16", True)),
    "insert without a neighbour": (insert_key("bf16", True, beside="nobody"), ("bf16", True)),
    "insert a mapping": (
        insert_key("accelerator_config", {"a": {"b": None}}, beside="empty"),
        ("accelerator_config", {"a": {"b": None}}),
    ),
    "insert inside": (
        insert_key("fsdp_config.offload", True, beside="fsdp_config.version"),
        ("fsdp_config", {"version": 2, "offload": True}),
    ),
    "insert into nothing": (insert_key("empty.x", 1, beside="empty"), ("empty", {"x": 1})),
}


@pytest.mark.parametrize("text", [LINES, ONE_LINE, LINES.replace("\n", "\r\n")], ids=["lines", "one line", "windows"])
@pytest.mark.parametrize("name", EDITS)
def test_set_and_insert(text, name):
    edit, (key, value) = EDITS[name]
    after = apply_edits(parse_document("training_args.json", text.encode()), (edit,))
    assert json.loads(after.text) == {**json.loads(text), key: value}


@pytest.mark.parametrize("text", [LINES, ONE_LINE], ids=["lines", "one line"])
@pytest.mark.parametrize("key", ["output_dir", "per_device_train_batch_size", "empty"])
def test_delete(text, key):
    after = apply_edits(parse_document("training_args.json", text.encode()), (delete_key(key),))
    assert json.loads(after.text) == {name: value for name, value in json.loads(text).items() if name != key}


def test_a_new_key_stands_on_a_line_of_its_own():
    after = apply_edits(parse_document("x.json", LINES.encode()), (insert_key("bf16", True, beside="output_dir"),))
    assert '  "output_dir": "x",\n  "bf16": true,\n' in after.text


def test_renaming_quotes_the_name():
    edits = (insert_key("optim", "sgd", beside="output_dir"), delete_key("output_dir"))
    after = apply_edits(parse_document("x.json", LINES.encode()), edits)
    assert json.loads(after.text)["optim"] == "sgd"
    assert next(iter(json.loads(after.text))) == "optim"


def test_what_only_yaml_takes_is_edited_as_yaml():
    after = apply_edits(parse_document("x.yml", b"{a: 1}"), (set_key("a", 2),))
    assert after.text == "{a: 2}"


def test_an_empty_object_is_refused_rather_than_broken():
    document = parse_document("x.json", b'{"a": 1}')
    emptied = apply_edits(document, (delete_key("a"),))
    assert json.loads(emptied.text) == {}
    with pytest.raises(EditRefused):
        apply_edits(emptied, (insert_key("b", 1, beside="a"),))
