"""`vramwise new --as script`: a Python script that means what the config means."""

import ast
import json

import pytest

from vramwise.api import new

pytestmark = pytest.mark.usefixtures("brief_searches")
MODEL = "HuggingFaceTB/SmolLM2-135M"
CHAT = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho " * 50}]}
ROWS = {
    "alpaca": {"instruction": "Say", "input": "it", "output": "Yes " * 50},
    "chat": CHAT,
    "pairs": {"prompt": "Say", "chosen": "Yes " * 50, "rejected": "No"},
    "prompt": {"question": "Say", "answer": "Yes " * 50},
}


@pytest.fixture(params=ROWS)
def script(request, tmp_path, monkeypatch):
    """The script for a format."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(ROWS[request.param])] * 60))
    return new(MODEL, gpu="8GB", trainer="trl", data="data.jsonl", method="qlora", script=True)


def calls(text):
    """Keyword arguments of every call by its name, where they are literals."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found[node.func.id] = {word.arg: _literal(word.value) for word in node.keywords}
    return found


def _literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def test_the_script_is_read_as_what_was_chosen(script):
    said, run = calls(script.text), script.subject.run
    arguments = said.get("SFTConfig") or said["DPOConfig"]
    assert script.findings == ()
    assert script.subject.document.script is not None
    assert arguments["per_device_train_batch_size"] == run.batch.micro_batch_size
    assert arguments["max_length"] == run.shapes.sequence_len
    assert said["LoraConfig"]["r"] == run.adapter.lora_r
    assert run.loading.quantization == "4bit"
    assert said["load_dataset"]["data_files"] == "data.jsonl"
    assert ("DPOConfig" in said) == (run.objective.rl == "dpo")
    # the allocator is set before torch is imported
    assert script.text.index("os.environ") < script.text.index("import torch")


def test_script_and_config_are_one_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho " * 50}]
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps({"messages": turns})] * 60))
    options = {"gpu": "8GB", "trainer": "trl"}
    script, config = (new(MODEL, **options, data="data.jsonl", method="lora", script=form) for form in (True, False))
    assert script.prediction.needs.highest_reserved_bytes == config.prediction.needs.highest_reserved_bytes
    assert script.subject.run.batch == config.subject.run.batch
    assert script.subject.run.savings == config.subject.run.savings
    assert script.duration == config.duration


def test_columns_are_mapped_to_those_that_trl_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(ROWS["alpaca"])] * 20))
    text = new(MODEL, gpu="8GB", trainer="trl", data="data.jsonl", method="lora", script=True).text
    mapped = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda))
    row = eval(compile(ast.Expression(mapped), "script", "eval"))(ROWS["alpaca"])
    assert row == {"prompt": "Say\n\nit", "completion": "Yes " * 50}
