"""Training scripts and notebooks → every verb that reads them: damaged ones, odd Python, notebooks of a wrong shape,
and every argument of a training call with a value of every kind."""

import json

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, lines_changed, odd_number_text, odd_value
from tests.fuzz.script_arguments import walk
from tests.fuzz.seeds import ROOT
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import write_model

_SCRIPT = """\
import argparse, os, sys, torch, yaml
from dataclasses import dataclass, field
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, TrainingArguments
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="model")
parser.add_argument("--batch", type=int, default=2)
flags = parser.parse_args()
@dataclass
class Mine:
    length: int = field(default=1024)
    size: int = 16 // 4
    def __init__(self, rate=1e-4):
        self.rate = rate
mine = Mine()
kwargs = dict(per_device_train_batch_size=flags.batch, gradient_accumulation_steps=mine.size)
kwargs.update(bf16=torch.cuda.is_bf16_supported())
kwargs.setdefault("optim", "adamw_8bit")
quant = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
def load(name):
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=quant, dtype=torch.bfloat16)
    return prepare_model_for_kbit_training(model)
if os.getenv("LORA") or True:
    model = get_peft_model(load(flags.model), LoraConfig(r=8, target_modules=[f"{one}_proj" for one in "qkvo"]))
else:
    model = load(flags.model)
args = SFTConfig(output_dir="out", max_length=mine.length, learning_rate=mine.rate, **kwargs)
args.gradient_checkpointing = not args.packing
trainer = SFTTrainer(model=model, args=args, train_dataset=[])
trainer.train()
"""
_EXAMPLE = ROOT / "examples" / "train_qlora.py"
_LINES = (
    "!pip install trl=={0} {1}",
    "%%bash",
    "%load_ext {1}",
    "print 'Python 2'",
    "exec 'x' in d",
    "kwargs['{1}'] = {0}",
    "args.max_length = {0} ** {0}",
    "kwargs = {{**kwargs, **kwargs}}",
    "model = model = model",
    "flags.batch = flags.batch * {0}",
    "match {0}:\n    case _: pass",
    "def load(name, *a, **k): return load(name, *a, **k)",
    "class Mine(Mine): pass",
    "x = '{1}' * {0}",
    "x = f'{{x}}{{x}}{{x}}'",
    "for i in range({0}): kwargs.update(a=i)",
    "lambda: (yield)",
    "# -*- coding: {1} -*-",
    "trainer = SFTTrainer(model, args=SFTConfig(**kwargs, max_length={0}))",
    "args = SFTConfig(*kwargs, **mine, **args)",
)
_HEADS = (
    b"",
    b"\xef\xbb\xbf",
    b"# -*- coding: utf-16 -*-\n",
    b"# coding: latin-1\n\xe9\n",
    b"\xff\xfe",
    b"#!/bin/sh\n",
)


def _line(rng, line=""):
    if line and rng.random() < 0.2:
        return line + rng.choice(HOSTILE_TEXT)
    return rng.choice(_LINES).format(odd_number_text(rng), rng.choice(HOSTILE_TEXT))


def _deep(rng):
    """Nesting, long chains and huge literals."""
    count = rng.choice((50, 500, 5000))
    start, middle, end = rng.choice(
        (
            ("(" * count, "1", ")" * count),
            ("[" * count, "", "]" * count),
            ("-" * count, "1", ""),
            ("1" + "+1" * count, "", ""),
            ("a" + ".b" * count, "", ""),
            ("f(" * count, "", ")" * count),
            ("{'a':" * count, "1", "}" * count),
            ("[" + "1," * count * 10, "", "]"),
            ("'" + "x" * count * 100, "", "'"),
            ("9" * count, "", ""),
            ("not " * count, "1", ""),
            ("1 if 1 else " * count, "1", ""),
        )
    )
    return f"deep = {start}{middle}{end}\n"


def script(rng):
    """A script: damaged, with odd lines, or with one expression that is too much."""
    text = _SCRIPT if rng.random() < 0.97 else _EXAMPLE.read_text()  # its model takes long to predict
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(_HEADS) + lines_changed(rng, text, _SCRIPT, _line).encode("utf-8", "replace")
    if kind < 0.7:
        lines = text.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        return "".join([*lines[:at], _deep(rng), *lines[at:]]).replace("r=8", "r=deep").encode()
    return bytes_changed(rng, rng.choice(_HEADS) + text.encode(), _SCRIPT.encode())


def notebook(rng):
    """A notebook: its cells damaged as scripts are, or not of a notebook's shape."""
    text = script(rng).decode("utf-8", "replace")
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines) + 1)
    cells = [
        {"cell_type": rng.choice(("code", "code", "code", "markdown")), "metadata": {}, "outputs": [], "source": source}
        for source in (lines[:at], "".join(lines[at:]))
    ]
    whole = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    kind = rng.random()
    if kind < 0.25:
        rng.choice(cells)[rng.choice(("source", "cell_type", "outputs", "id"))] = odd_value(rng)
    elif kind < 0.4:
        whole[rng.choice(("cells", "nbformat", "metadata"))] = odd_value(rng)
    elif kind < 0.45:
        return json.dumps(odd_value(rng)).encode()
    data = json.dumps(whole, indent=rng.choice((None, 1, 4)), ensure_ascii=rng.random() < 0.5).encode(
        "utf-8", "replace"
    )
    return bytes_changed(rng, data) if kind > 0.9 else data


def _verb(name, *words):
    def run(bench, data, extension):
        write_model(bench)
        bench.command(name, bench.write(f"train.{extension}", data), *words, own_text="--diff" in words)

    return run


def _checks(extension):
    verbs = {
        "read": _verb("check", "--no-predict", "--show-resolved"),
        "check": _verb("check", "--gpu", "rtx-4090"),
        "fix": _verb("fix", "--diff", "--unsafe-fixes", "--gpu", "rtx-4090"),
        "predict": _verb("predict", "--gpu", "rtx-4090", "--offline", "--format", "json"),
        "args": _verb(
            "predict", "--gpu", "2xa100-80gb", "--offline", "--args", "--batch 4 --model x", "--set", "length=64"
        ),
    }
    return {name: lambda bench, data, run=run: run(bench, data, extension) for name, run in verbs.items()}


def _as_notebook(bench, data):
    """The same source as the cells of a notebook, cut where its calls begin."""
    head, middle, body = data.decode("utf-8", "replace").partition("parser =")
    cells = [{"cell_type": "code", "source": source} for source in (head, middle + body)]
    _verb("check", "--no-predict")(bench, json.dumps({"cells": cells}).encode(), "ipynb")


add(name="scripts", about="training scripts", extension="py", make=script, checks=_checks("py"), share=2)
add(name="notebooks", about="notebooks", extension="ipynb", make=notebook, checks=_checks("ipynb"), share=2)
add(
    name="arguments",
    about="every argument of a training call × a value of every kind, in a script or a notebook",
    extension="py",
    make=script,
    walk=walk,
    share=10,
    checks={
        "read": _checks("py")["read"],
        "predict": _checks("py")["predict"],
        # Without a card: what remedies would give is predicted for other targets.
        "fix": lambda bench, data: _verb("fix", "--diff", "--unsafe-fixes")(bench, data, "py"),
        "notebook": _as_notebook,
    },
)
