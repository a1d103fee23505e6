"""Modules beside a script: their functions, classes and constants are followed; edits stay in the script."""

import json

import pytest
from click.testing import CliRunner

from vramwise.cli.main import cli
from vramwise.opening.options import Options
from vramwise.opening.scripts import read_training
from vramwise.trainers.scripts.reading import NoTraining

MAKERS = """\
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from peft import LoraConfig

RANK = 32

def make(args):
    bits = BitsAndBytesConfig(load_in_4bit=args.four, bnb_4bit_quant_storage=getattr(torch, args.storage))
    storage = getattr(torch, args.storage)
    kwargs = {"dtype": storage if storage.is_floating_point else torch.float32, "quantization_config": bits}
    if args.flash:
        if torch.xpu.is_available():
            kwargs["attn_implementation"] = "eager"
        else:
            kwargs["attn_implementation"] = "flash_attention_2"
    model = AutoModelForCausalLM.from_pretrained(args.name, **kwargs)
    return model, LoraConfig(r=RANK, target_modules=args.targets.split(","))

if __name__ == "__main__":
    SFTTrainer(model="x/not-this", args=SFTConfig())
"""
TRAIN = """\
from argparse import Namespace
from trl import SFTConfig, SFTTrainer
from makers import make

args = Namespace(name="x/y", four=True, storage="{storage}", flash=True, targets="q_proj,v_proj")
model, adapter = make(args)
SFTTrainer(model, args=SFTConfig(max_length=512), peft_config=adapter)
"""


def read(folder, text, name="train.py"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_training(str(path), text.encode(), Options(gpu="h100"))


@pytest.mark.parametrize(("storage", "dtype"), [("bfloat16", "bfloat16"), ("uint8", "float32")])
def test_a_function_of_a_module_beside_the_script_makes_the_model(tmp_path, storage, dtype):
    (tmp_path / "makers.py").write_text(MAKERS)
    found = read(tmp_path, TRAIN.format(storage=storage))
    expected = {"model_name_or_path": "x/y", "dtype": dtype, "load_in_4bit": True, "lora_r": 32}
    assert expected.items() <= found.values.items()
    assert found.values["lora_target_modules"] == ["q_proj", "v_proj"]
    assert found.values["attn_implementation"] == "flash_attention_2"
    assert found.script.unsaid == ()
    assert len(found.script.trainings) == 1


def test_what_another_file_sets_is_not_edited_in_the_script(tmp_path):
    (tmp_path / "makers.py").write_text(MAKERS)
    found = read(tmp_path, TRAIN.format(storage="uint8"))
    assert found.spans.keys() == {("max_length",)}
    assert found.script.homes.keys() == {"trainer", "args"}


def test_a_package_is_followed_through_its_imports(tmp_path):
    package = tmp_path / "src" / "mine"
    (package / "models").mkdir(parents=True)
    (package / "models" / "__init__.py").write_text("from .making import build as make_model\n")
    (package / "models" / "making.py").write_text(
        "from transformers import AutoModelForCausalLM\nfrom ..settings import NAME\n"
        "def build():\n    return AutoModelForCausalLM.from_pretrained(NAME)\n"
    )
    (package / "settings.py").write_text("NAME = 'x/y'\n")
    script = "from trl import SFTConfig, SFTTrainer\nfrom mine.models import make_model\n"
    found = read(tmp_path, f"{script}SFTTrainer(make_model(), args=SFTConfig())\n", "src/mine/train.py")
    assert found.values["model_name_or_path"] == "x/y"


def test_dataclasses_and_trainers_of_a_module_are_known(tmp_path):
    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\nimport trl\n"
        "@dataclass\nclass Mine(trl.SFTConfig):\n    max_length: int = 300\n"
        "class Trains(trl.SFTTrainer):\n    pass\n"
        "class Looks:\n    pass\n"
    )
    script = "from transformers import HfArgumentParser\nfrom own import Mine, Trains, Looks as SFTTrainer\n"
    script += (
        "(args,) = HfArgumentParser((Mine,)).parse_args_into_dataclasses()\nSFTTrainer()\nTrains('x/y', args=args)\n"
    )
    found = read(tmp_path, script)
    assert found.values["max_length"] == 300
    assert found.script.trainings == ("SFTTrainer (line 5)",)  # the class that Trains extends


def test_a_training_in_another_file_is_not_taken_for_one_of_an_unreadable_module(tmp_path):
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "circle.py").write_text("from train import x\nfrom circle import y\n")
    with pytest.raises(NoTraining):
        read(tmp_path, "from broken import a\nfrom circle import b\nfrom torch import nn\n")


def test_text_alone_reads_no_module(tmp_path):
    (tmp_path / "makers.py").write_text(MAKERS)
    text = TRAIN.format(storage="uint8")
    path = tmp_path / "train.py"
    path.write_text(text)
    found = read_training(str(path), text.encode(), Options(gpu="h100", text_alone=True))
    assert "model_name_or_path" not in found.values


def test_a_shortened_field_of_a_yaml_is_taken_for_the_field_it_means(tmp_path):
    (tmp_path / "run.yml").write_text("max_seq_len: 700\nlearn: 3\nname: x/y\nname_of: z\n")
    script = "from dataclasses import dataclass\nfrom trl import SFTConfig, SFTTrainer, TrlParser\n"
    script += "@dataclass\nclass Own:\n    name: str = ''\n    max_seq_length: int = 512\n    learn_rate: float = 1.0\n"
    script += "own, args = TrlParser((Own, SFTConfig)).parse_args_and_config()\n"
    script += (
        "args.max_length = own.max_seq_length\nargs.learning_rate = own.learn_rate\nSFTTrainer(own.name, args=args)\n"
    )
    path = tmp_path / "train.py"
    path.write_text(script)
    found = read_training(str(path), script.encode(), Options(gpu="h100", script_args="--config run.yml"))
    assert (found.values["max_length"], found.values["learning_rate"]) == (700, 1.0)
    assert any("max_seq_len is no field, which parsers ignore or refuse" in str(one) for one in found.script.assumed)
    found = read_training(str(path), script.encode(), Options(gpu="h100", script_args="--max_seq 800 --learn 2.0"))
    assert (found.values["max_length"], found.values["learning_rate"]) == (800, 2.0)


def test_predict_prices_what_the_module_makes(tmp_path):
    (tmp_path / "makers.py").write_text(MAKERS)
    text = TRAIN.format(storage="uint8").replace("x/y", "meta-llama/Llama-3.1-8B")
    (tmp_path / "train.py").write_text(text)
    result = CliRunner().invoke(cli, ["predict", str(tmp_path / "train.py"), "--gpu", "h100", "--format", "json"])
    said = json.loads(result.stdout)
    assert (result.exit_code, said["verdict"]["memory"]) == (0, "fits")
    assert "adapter" not in " ".join(said["reasons"])  # nothing is left open
    assert said["breakdown"]["weights"] < 8 * 2**30  # layers in 4 bits, embeddings and head in fp32


@pytest.mark.parametrize(
    "line", ["import own.run\nown.run.train", "import own.run as r\nr.train", "from own import run\nrun.train"]
)
def test_a_function_of_an_imported_module_is_followed(tmp_path, line):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/__init__.py").write_text("")
    (tmp_path / "own/run.py").write_text(
        "from trl import SFTConfig, SFTTrainer\nSIZE = 6\ndef train(model, bs=2):\n"
        "    SFTTrainer(model, args=SFTConfig(per_device_train_batch_size=bs))\n"
    )
    found = read(tmp_path, f"{line}('x/y', bs=7)\n")
    assert (found.values["model_name_or_path"], found.values["per_device_train_batch_size"]) == ("x/y", 7)


def test_branches_that_cuda_does_not_take_are_left_out(tmp_path):
    text = "import torch, sys\nfrom transformers import AutoTokenizer, Trainer, TrainingArguments\n"
    text += "tok = AutoTokenizer.from_pretrained('x')\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
    text += "if device.type == 'cpu':\n    def f(x): return tok(x, truncation=True, max_length=128)\n"
    text += "else:\n    def f(x): return tok(x, truncation=True, max_length=512)\n"
    text += "n = 1 if sys.platform == 'darwin' else 4\n"
    text += "Trainer('x/y', args=TrainingArguments('o', per_device_train_batch_size=n, eval_strategy='steps' if len(val_data) > 0 else 'no'))\n"
    values = read(tmp_path, text).values
    assert (values["max_length"], values["per_device_train_batch_size"], values["eval_strategy"]) == (512, 4, "steps")


def test_a_saved_adapter_is_read_if_it_is_here(tmp_path):
    text = "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTTrainer\n"
    text += "m = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained('x/y'), 'saved')\nSFTTrainer(m)\n"
    found = read(tmp_path, text)
    assert "lora_r" not in found.values
    assert any(one.key == "adapter" for one in found.script.unsaid)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/adapter_config.json").write_text('{"r": 64, "target_modules": ["q_proj"], "lora_alpha": 8}')
    values = read(tmp_path, text).values
    assert (values["lora_r"], values["lora_target_modules"]) == (64, ["q_proj"])
