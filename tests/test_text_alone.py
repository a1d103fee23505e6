"""A text judged alone: nothing that it names, and nothing around it, is read from this machine."""

import json
from pathlib import Path

import pytest

import vramwise
from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.variants.lengths import NO_DATA

ROOT = Path(__file__).parent.parent


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config whose model, DeepSpeed file and data lie here, in a project with settings of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.vramwise]\ngpu = "t4"\n')
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    (tmp_path / "rows.jsonl").write_text('{"text": "a few words"}\n' * 8)
    return (
        f"base_model: {ROOT / 'examples/tiny/model'}\ndeepspeed: zero.json\nsequence_len: 512\nmicro_batch_size: 1\n"
        "datasets:\n  - path: rows.jsonl\n    type: completion\n"
    )


@pytest.mark.parametrize("alone", [False, True])
def test_nothing_is_read_where_the_text_is_alone(config, alone):
    subject = open_subject(Text(config), Options(text_alone=alone, gpus=2)).with_data()
    assert (subject.model is None) == alone
    assert subject.run.sharding.kind == ("zero2" if alone else "zero3")
    assert (subject.target.gpu is None) == alone
    assert (subject.data == NO_DATA) == alone


def test_nor_is_it_after_a_change(config):
    subject = open_subject(Text(config), Options(text_alone=True, gpus=2))
    again = subject.with_document(open_subject(Text(config + "num_epochs: 2\n"), Options(text_alone=True)).document)
    assert again.run.sharding.kind == "zero2"
    assert again.model is None


def test_a_text_and_a_mapping_are_mended_as_they_are():
    text = (ROOT / "examples" / "mistakes.yml").read_text("utf-8")
    (report,) = vramwise.fix(text, unsafe=True)
    assert report.path == "<text>"
    assert report.changed
    assert "optimizer: adamw_8bit\n" in report.after.text
    (mapped,) = vramwise.fix({"base_model": "meta-llama/Llama-3.2-1B", "optimizer": "adamw_8bt"}, unsafe=True)
    assert "adamw_8bit" in mapped.after.text
    assert not list(Path().glob("<text>"))
