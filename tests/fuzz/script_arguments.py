"""The walk over the arguments of training calls: each with values of every kind, as Python writes them in a script."""

from dataclasses import dataclass
from functools import cache

from tests.fuzz.keys import all_keys
from tests.fuzz.mutate import HOSTILE_TEXT
from tests.fuzz.schedule import Walk

# A value is an expression; lines before it stand on their own. `{name}` is the argument.
_PYTHON = {
    "none": "None",
    "true": "True",
    "minus-one": "-1",
    "zero": "0",
    "eight": "8",
    "digits": "9" * 4000,
    "too-many-digits": "9" * 5000,
    "power": "2 ** 2 ** 2 ** 40",
    "shift": "1 << 10 ** 9",
    "float": "1e-4",
    "infinity": "1e999",
    "not-a-number": "float('nan')",
    "complex": "1j",
    "ellipsis": "...",
    "empty-text": "''",
    "word": "'auto'",
    "raw-text": "r'\\x'",
    "bytes": "b'\\xff'",
    "long-text": "'x' * 10 ** 9",
    "formatted": "f'{8:>1000000000}'",
    "formatted-itself": "f'{kwargs!r:{8}}'",
    "percent": "'%1000000000d' % 8",
    "joined": "' '.join(['a'] * 10 ** 8)",
    **{f"hostile-{place}": repr(text) for place, text in enumerate(HOSTILE_TEXT)},
    "list": "[1, 2, 3]",
    "texts": "['q_proj', 'v_proj']",
    "long-list": "[0] * 10 ** 9",
    "nested-list": "[[[]], [[1]]]",
    "deep-list": "[" * 90 + "]" * 90,
    "starred-list": "[*range(10 ** 9)]",
    "tuple": "(8,)",
    "set": "{'a', 'b'}",
    "mapping": "{'use_reentrant': False, None: 1}",
    "merged": "{**kwargs, **kwargs}",
    "comprehension": "[one for one in range(10 ** 9) if one]",
    "generator": "(one for one in kwargs)",
    "mapped": "{one: one for one in 'abc'}",
    "lambda": "lambda one: one",
    "called-lambda": "(lambda one: one * 2)(4)",
    "conditional": "1 if flags.batch else 2",
    "chained": "1 < flags.batch < 3",
    "either": "None or 8",
    "walrus": "(size := 8)",
    "unknown-name": "NOWHERE",
    "unknown-attribute": "torch.nowhere.here",
    "type": "torch.bfloat16",
    "flag": "flags.batch",
    "field": "mine.length",
    "environment": "os.environ.get('SIZE', 8)",
    "environment-number": "int(os.environ['SIZE'])",
    "argument-line": "sys.argv[1]",
    "file": "open('/dev/zero').read()",
    "evaluated": "eval('8')",
    "imported": "__import__('os').system('true')",
    "function": "size_of(8)",
    "itself": "endless(8)",
    "subscript": "[1, 2][5]",
    "slice": "'abc'[::0]",
    "key": "kwargs['nowhere']",
    "division": "8 // 0",
    "remainder": "8 % 0.0",
    "converted": "int('x')",
    "long-conversion": "int('9' * 5000)",
    "config": "LoraConfig(r=4)",
    "awaited": "(yield)",
}
# What a script has before and behind its calls.
_HEAD = """\
import argparse, os, sys, torch
from dataclasses import dataclass, field
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
flags = parser.parse_args()
@dataclass
class Mine:
    length: int = field(default=256)
mine = Mine()
kwargs = dict(logging_steps=1)
def size_of(one, two=2):
    return one // two
def endless(one):
    return endless(one)
"""
_PLAIN = """\
quant = BitsAndBytesConfig(load_in_4bit=True{quantization})
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=quant{model})
peft_config = LoraConfig(r=8{lora})
args = {config}(output_dir="out", per_device_train_batch_size=2{args}, **kwargs)
trainer = {trainer}(model=model, args=args, train_dataset=[]{trainer_arguments})
trainer.train()
"""
_UNSLOTH = """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("model", max_seq_length=256{model})
model = FastLanguageModel.get_peft_model(model, r=8{lora})
args = SFTConfig(output_dir="out", per_device_train_batch_size=2{args}, **kwargs)
trainer = SFTTrainer(model=model, tokenizer=tokenizer, args=args{trainer_arguments})
trainer.train()
"""
# The ways an argument reaches its call: as a keyword, through a mapping, through a name, set behind the call.
_WAYS = ("keyword", "mapping", "name", "attribute")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of one call: the library whose script it is in, and the call's role there."""

    library: str
    role: str
    name: str


@cache
def all_arguments():
    """Arguments of configs, models, adapters and trainers that scripts of TRL, transformers and Unsloth may have."""
    from vramwise.trainers.scripts import calls

    found = {
        Argument(library=key.trainer, role="args", name=key.path)
        for key in all_keys()
        if key.trainer in ("trl", "hf-trainer", "unsloth") and key.path.isidentifier()
    }
    for library, roles in (("trl", calls.ARGUMENTS), ("unsloth", calls.UNSLOTH_ARGUMENTS)):
        found |= {Argument(library=library, role=role, name=name) for role, names in roles.items() for name in names}
    return tuple(sorted(found, key=lambda one: (one.library, one.role, one.name)))


@dataclass(frozen=True, kw_only=True)
class ScriptWalk(Walk):
    """Every argument with every kind of value, in scripts that are otherwise fine."""

    def text(self, number):
        """The script of one input; the way the argument takes to its call is another in each round."""
        argument, kind = self.pair(number)
        turns = number + number // len(self.keys) + number // len(self)
        return script_with(argument, kind, _WAYS[turns % len(_WAYS)])


def script_with(argument, kind, way="keyword"):
    """A script that gives an argument a value of a kind."""
    before, given, behind = _given(argument, _PYTHON[kind], way)
    role = {"trainer": "trainer_arguments"}.get(argument.role, argument.role)
    parts = dict.fromkeys(("quantization", "model", "lora", "args", "trainer_arguments"), "")
    parts[role] += given
    if argument.library == "unsloth":
        body = _UNSLOTH
    else:
        body = _PLAIN
        plain = argument.library == "hf-trainer"
        parts |= {
            "config": "TrainingArguments" if plain else "SFTConfig",
            "trainer": "Trainer" if plain else "SFTTrainer",
        }
        if not plain:
            parts["trainer_arguments"] += ", peft_config=peft_config"
    return _HEAD + before + body.format(**parts).replace("trainer = ", f"{behind}trainer = ", 1)


def _given(argument, value, way):
    """(lines before the calls, what the call is given, lines behind the config's)."""
    name = argument.name
    if way == "mapping":
        return f"more = {{'{name}': {value}}}\nmore.update(kwargs)\n", ", **more", ""
    if way == "name":
        return f"{name}_value = {value}\n", f", {name}={name}_value", ""
    if way == "attribute" and argument.role == "args":
        return "", "", f"args.{name} = {value}\n"
    return "", f", {name}={value}", ""


@cache
def walk():
    """The walk over all that is known."""
    return ScriptWalk(keys=all_arguments(), kinds=tuple(_PYTHON))
