"""Values that a script gives its training: read from the syntax tree, with the place of each and what was assumed."""

import ast

import pytest

from vramwise.documents.python.scopes import nodes_of
from vramwise.documents.python.source import read_source
from vramwise.errors import ConfigError, VramwiseError
from vramwise.trainers.scripts.reading import NoTraining, Reading, may_train, read_script

HEAD = "from trl import SFTConfig, SFTTrainer\nfrom peft import LoraConfig\nimport os, torch\n"
TAIL = 'trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=args)\n'


def read(body, **reading):
    return read_script("train.py", (HEAD + body).encode(), Reading(bf16=True, capability=(8, 9), **reading))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("args = SFTConfig(per_device_train_batch_size=4)\n", 4),
        ("B = 8\nargs = SFTConfig(per_device_train_batch_size=B)\n", 8),
        ("B = '4 8'.split()\nargs = SFTConfig(per_device_train_batch_size=int(B[1]))\n", 8),
        ("B, M = 32, 4\nargs = SFTConfig(per_device_train_batch_size=B // M)\n", 8),
        ("kw = dict(per_device_train_batch_size=2)\nargs = SFTConfig(**kw)\n", 2),
        ("kw = {'per_device_train_batch_size': 2}\nkw['per_device_train_batch_size'] = 6\nargs = SFTConfig(**kw)\n", 6),
        ("class C:\n    b = 3\nargs = SFTConfig(per_device_train_batch_size=C.b)\n", 3),
        ("c = {'b': {'n': 5}}\nargs = SFTConfig(per_device_train_batch_size=c['b']['n'])\n", 5),
        ("args = SFTConfig(per_device_train_batch_size=int(os.environ.get('B', '7')))\n", 7),
        ("args = SFTConfig()\nargs.per_device_train_batch_size = 9\n", 9),
        (
            "if torch.cuda.is_bf16_supported():\n    b = 1\nelse:\n    b = 2\nargs = SFTConfig(per_device_train_batch_size=b)\n",
            1,
        ),
        ("b = 1\nb = b + 1\nargs = SFTConfig(per_device_train_batch_size=b)\n", 2),
        ("def make(b=4):\n    return SFTConfig(per_device_train_batch_size=b)\nargs = make()\n", 4),
        ("def n():\n    return 3\nargs = SFTConfig(per_device_train_batch_size=n())\n", 3),
    ],
)
def test_a_value_is_found(body, value):
    assert read(body + TAIL).values["per_device_train_batch_size"] == value


def test_flags_have_their_defaults_and_say_so():
    body = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=4)\n"
        "p.add_argument('--lora', action='store_true')\na = p.parse_args()\n"
        "args = SFTConfig(per_device_train_batch_size=a.batch_size, packing=a.lora)\n" + TAIL
    )
    found = read(body)
    assert found.values["per_device_train_batch_size"] == 4
    assert found.values["packing"] is False
    assert any("--batch-size has its default, 4" in note for note in map(str, found.script.assumed))
    given = read(body, args="--batch-size 16 --lora")
    assert given.values["per_device_train_batch_size"] == 16
    assert given.values["packing"] is True


def test_a_required_flag_is_reported_with_its_line_and_supplied_by_set():
    body = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--model', required=True)\n"
        "a = p.parse_args()\ntrainer = SFTTrainer(a.model, args=SFTConfig())\n"
    )
    (missing,) = read(body).script.unsaid
    assert (missing.key, missing.name, missing.line) == ("model_name_or_path", "model", 6)
    assert read(body, said={"model": "Qwen/Qwen3-4B"}).values["model_name_or_path"] == "Qwen/Qwen3-4B"


def test_an_unknown_branch_reports_both_sides():
    body = "x = input()\nif x:\n    b = 1\nelse:\n    b = 8\nargs = SFTConfig(per_device_train_batch_size=b)\n" + TAIL
    (missing,) = read(body).script.unsaid
    assert missing.key == "per_device_train_batch_size"
    assert sorted(missing.either) == [1, 8]


def test_the_model_is_followed_through_what_wraps_it():
    body = (
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig\n"
        "from peft import get_peft_model, prepare_model_for_kbit_training\n"
        "q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True)\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-4B', quantization_config=q, torch_dtype=torch.float16)\n"
        "model = prepare_model_for_kbit_training(model)\n"
        "model = get_peft_model(model, LoraConfig(r=32, target_modules=['q_proj']))\n"
        "trainer = SFTTrainer(model=model, args=SFTConfig())\n"
    )
    values = read(body).values
    assert values["model_name_or_path"] == "Qwen/Qwen3-4B"
    assert (values["load_in_4bit"], values["use_bnb_nested_quant"], values["dtype"]) == (True, True, "float16")
    assert (values["use_peft"], values["lora_r"], values["lora_target_modules"]) == (True, 32, ["q_proj"])
    assert values["gradient_checkpointing"] is True
    assert values["lora_alpha"] == 8  # PEFT's default, not that of TRL's command


def test_a_yaml_file_beside_the_script_is_read():
    body = (
        "import yaml\nc = yaml.safe_load(open('c.yaml'))\nargs = SFTConfig(per_device_train_batch_size=c['b'])\n" + TAIL
    )
    found = read(body, load=lambda name: {"b": 12} if name == "c.yaml" else None)
    assert found.values["per_device_train_batch_size"] == 12
    (missing,) = read(body).script.unsaid
    assert "c.yaml is not available here" in missing.why


def test_several_trainings_are_listed_and_one_is_chosen():
    body = "a = SFTTrainer('A', args=SFTConfig())\nb = SFTTrainer('B', args=SFTConfig())\n"
    assert read(body).values["model_name_or_path"] == "B"
    first = read(body, call=1)
    assert first.values["model_name_or_path"] == "A"
    assert first.script.trainings == ("SFTTrainer (line 4)", "SFTTrainer (line 5)")
    with pytest.raises(VramwiseError, match="2 trainer calls"):
        read(body, call=3)


def test_versions_come_from_lines_that_install_them():
    found = read_source(b"!pip install -q trl==0.12.0 'peft==0.14.0' torch\nimport trl\n%load_ext x\n")
    assert found.versions == {"trl": "0.12.0", "peft": "0.14.0"}


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("# /// script\n# 'trl==1.0'\n# ///\n", {"trl": "1.0"}),
        ("# /// script\n# 'trl==1.0'\nx = 1\n# ///\n", {}),
        ("# /// script\n" * 3 + "# 'trl==1.0'\n# /// \n# 'trl==2.0'\n# ///\n", {"trl": "1.0"}),
        ("# /// script\n# 'trl==1.0'\n\n# /// script  \n# 'trl==2.0'\n# ///\n", {"trl": "2.0"}),
        (" # /// script\n# 'trl==1.0'\n# ///\n", {}),
    ],
)
def test_metadata_counts_from_its_first_line_to_its_last(text, versions):
    assert read_source(f"{text}x = 1\n".encode()).versions == versions


def test_nodes_come_in_the_order_of_ast():
    tree = ast.parse("a = [f(b, *c, d=e)[1:2] if not x else (lambda y: y + 1) for z in {1: f'{q!r:>{w}}', **k} if z]\n")
    assert [one for one in nodes_of(tree) if one._fields] == [one for one in ast.walk(tree) if one._fields]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", "cannot parse this Python source"),
        ("x = " + "(" * 3000 + ")" * 3000, "Python|nested"),
        ('{"cells": [', "list of cells"),
        ("x = 1\0", "NUL"),
    ],
)
def test_source_that_cannot_be_read_is_one_sentence(text, said):
    with pytest.raises(ConfigError, match=said):
        read_source(text.encode())


def test_source_that_trains_nothing_says_so():
    assert not may_train(b"print('hello')")
    with pytest.raises(NoTraining):
        read_script("x.py", b"class Trainer: pass\n", Reading())


def test_names_that_lead_in_circles_end():
    body = "a = b\nb = a\nargs = SFTConfig(per_device_train_batch_size=a)\n" + TAIL
    assert read(body).script.unsaid[0].key == "per_device_train_batch_size"
    chain = "".join(f"x{at} = x{at - 1} * 2 + x{at - 1}\n" for at in range(1, 200))
    assert read("x0 = 1\n" + chain + "args = SFTConfig(max_steps=x199)\n" + TAIL).script.unsaid
