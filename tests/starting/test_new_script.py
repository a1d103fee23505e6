"""`vramwise new --as script`: a Python script that means what the config means."""

import ast
import json

import pytest

from vramwise.api import Options, new

MODEL = "HuggingFaceTB/SmolLM2-135M"
# Keys that the script says in another way than as arguments of SFTConfig.
ELSEWHERE = {
    *("model_name_or_path", "dtype", "attn_implementation", "load_in_4bit", "use_peft", "env", "datasets"),
    *("dataset_name", "lora_r", "lora_alpha", "lora_target_modules", "test_split_size"),
}
CHAT = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho " * 50}]}
ROWS = {
    "alpaca": {"instruction": "Say", "input": "it", "output": "Yes " * 50},
    "chat": CHAT,
    "pairs": {"prompt": "Say", "chosen": "Yes " * 50, "rejected": "No"},
    "prompt": {"question": "Say", "answer": "Yes " * 50},
}


@pytest.fixture(params=ROWS)
def pair(request, tmp_path, monkeypatch):
    """The script for a format, and the values of the config that it stands for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(ROWS[request.param])] * 250))
    found = new(MODEL, Options(gpu="8GB", trainer="trl"), data="data.jsonl", method="qlora", script=True)
    return found.text, found.subject.document.values


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


def test_the_script_has_the_values_of_the_config(pair):
    text, values = pair
    said = calls(text)
    arguments = said.get("SFTConfig") or said["DPOConfig"]
    expected = {key: value for key, value in values.items() if key not in ELSEWHERE}
    assert {key: arguments.get(key) for key in expected} == expected
    assert said["LoraConfig"]["r"] == values["lora_r"]
    assert said["LoraConfig"]["target_modules"] == values["lora_target_modules"]
    assert said["BitsAndBytesConfig"]["load_in_4bit"] is True
    assert said["load_dataset"]["data_files"] == "data.jsonl"
    assert ("DPOConfig" in said) == ("beta" in values)


def test_columns_are_mapped_to_those_that_trl_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("\n".join([json.dumps(ROWS["alpaca"])] * 20))
    text = new(MODEL, Options(gpu="8GB", trainer="trl"), data="data.jsonl", method="lora", script=True).text
    mapped = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda))
    row = eval(compile(ast.Expression(mapped), "script", "eval"))(ROWS["alpaca"])
    assert row == {"prompt": "Say\n\nit", "completion": "Yes " * 50}


def test_the_allocator_is_set_before_torch_is_imported(pair):
    text, _ = pair
    assert text.index("os.environ") < text.index("import torch")
