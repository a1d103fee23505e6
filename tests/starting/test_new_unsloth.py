"""`vramwise new --trainer unsloth`: a script as its notebooks write it, or the file of its command."""

import ast
import json

import pytest

from vramwise.api import check, new
from vramwise.errors import VramwiseError

pytestmark = pytest.mark.usefixtures("brief_searches")
MODEL = "HuggingFaceTB/SmolLM2-135M"
ROWS = {
    "alpaca": {"instruction": "Say", "input": "it", "output": "Yes " * 50},
    "chat": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho " * 50}]},
    "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho " * 50}]},
    "prompt": {"question": "Say", "answer": "Yes " * 50},
    "text": {"text": "Yes " * 50},
}
TEXTS = {
    "alpaca": "### Instruction:\nSay\n\n### Input:\nit\n\n### Response:\nYes ",
    "chat": "user: Hi assistant: Ho ",
    "sharegpt": "user: Hi assistant: Ho ",
    "prompt": "SayYes ",
    "text": "Yes ",
}


class Tokenizer:
    """What a script asks of one."""

    eos_token = "</s>"
    chat_template = "one"

    def apply_chat_template(self, turns, tokenize):
        assert not tokenize
        return " ".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def made(kind, tmp_path, monkeypatch, **asked):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(ROWS[kind])] * 60))
    return new(MODEL, gpu="8GB", trainer="unsloth", data="data.jsonl", **asked)


@pytest.mark.parametrize("kind", ROWS)
def test_rows_become_texts(kind, tmp_path, monkeypatch):
    text = made(kind, tmp_path, monkeypatch, method="lora").text
    names = {"tokenizer": Tokenizer()}
    for node in ast.parse(text).body:
        constant = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").isupper()
        if constant or isinstance(node, ast.FunctionDef):
            exec(compile(ast.Module([node], []), "script", "exec"), names)
    row = {name: [value] for name, value in ROWS[kind].items()}
    (found,) = names["as_text"](row)["text"]
    assert TEXTS[kind] in found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_the_script_is_clean_and_read_as_what_was_chosen(method, tmp_path, monkeypatch):
    found = made("chat", tmp_path, monkeypatch, method=method)
    assert found.text.index("import FastLanguageModel") < found.text.index("from trl")
    report = check(found.text, gpu="8GB")[0]
    assert (report.findings, report.run.trainer) == ([], "unsloth")
    assert report.prediction.verdict().kind == "fits"
    assert report.run.adapter.kind == (None if method == "full" else method)
    assert report.prediction.needs.highest_reserved_bytes == found.prediction.needs.highest_reserved_bytes


def test_the_command_gets_a_file_with_its_reasons(tmp_path, monkeypatch):
    found = made("chat", tmp_path, monkeypatch, method="lora", script=False)
    assert found.launch == "unsloth train --config config.yml"
    assert "  batch_size: " in found.text
    assert "to spare" in next(line for line in found.text.splitlines() if line.startswith("  batch_size: "))
    assert [one.rule for one in check(found.text, gpu="8GB")[0].findings] == []


def test_preferences_are_refused_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(ROWS, "pairs", {"prompt": "Say", "chosen": "Yes", "rejected": "No"})
    with pytest.raises(VramwiseError, match="choose another --trainer for preference pairs"):
        made("pairs", tmp_path, monkeypatch)


def test_a_checkpoint_of_unknown_size_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"gpu": "8GB", "trainer": "unsloth"}
    found = new("Qwen/Qwen3-4B", **options, method="qlora", data_format="chat", online=False)
    assert "use_exact_model_name=True" in found.text
    assert found.prediction.verdict().memory == "fits"
    with pytest.raises(VramwiseError, match="--as script"):
        new("Qwen/Qwen3-4B", **options, method="qlora", data_format="chat", script=False, online=False)


def test_several_cards_are_started_with_torchrun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = new(MODEL, gpu="2x8GB", trainer="unsloth", method="lora", data_format="chat", online=False)
    assert "torchrun --nproc_per_node 2 train.py" in found.launch
    assert [one.rule for one in found.findings] == ["placeholder-left"]
