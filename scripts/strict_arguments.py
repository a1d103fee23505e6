"""Write schema/strict.json: which arguments stop at a value of another type, and at which, found by trying.

    python scripts/strict_arguments.py trl             (with trl installed: trainers/arguments and trainers/trl)
    python scripts/strict_arguments.py llamafactory    (with llamafactory installed: trainers/llamafactory)

Dataclasses check no types. A field is strict where `__post_init__`, or what the command does before anything is
loaded, compares, splits or looks up its value. Each key is given one value of every class, and written down with the
classes that are refused, if some value is taken at all: whether one is of its type is for the type to say. On any
machine; a card with bf16 is taken for granted.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

TRAINERS = Path(__file__).parents[1] / "src/vramwise/trainers"
CLASSES: dict[str, Any] = {"null": None, "number": 3, "text": "x", "list": [], "mapping": {}}
# Values that one or another key takes: without any that is taken, it is another key's fault.
OTHERS: tuple[Any, ...] = (False, 1, 8, 16, 0.5, float("inf"), ["x"], {"a": 1})
BASE = {"model_name_or_path": "Qwen/Qwen3-0.6B", "output_dir": "out"}
LLAMAFACTORY = BASE | {"dataset": "a", "do_train": True, "finetuning_type": "lora", "template": "qwen3"}

Parse = Callable[[dict[str, Any]], object]
Strict = dict[str, list[str]]


def takes(parse: Parse, base: dict[str, Any], key: str, value: Any) -> bool:
    """Whether the dataclasses take the value."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            parse({**base, key: deepcopy(value)})  # some dataclasses write into what they are given
    except (Exception, SystemExit):
        return False
    return True


def strict_keys(parse: Parse, base: dict[str, Any], keys: dict[str, Any]) -> Strict:
    """Of some keys, with their defaults, those that refuse a class of values, and which."""
    found = {}
    for key, default in keys.items():
        refused = [name for name, value in CLASSES.items() if not takes(parse, base, key, value)]
        if isinstance(default, bool):  # a switch that is refused as such tells nothing of types
            refused = [name for name in refused if takes(parse, base, key, bool(CLASSES[name]))]
        others = (default, *OTHERS) if len(refused) == len(CLASSES) else ()
        if refused and (not others or any(takes(parse, base, key, value) for value in others)):
            found[key] = refused
    return found


def defaults(classes: Iterable[Any]) -> dict[str, Any]:
    """Every argument of some dataclasses, with its default."""
    from dataclasses import MISSING, fields

    every = [one for kind in classes for one in fields(kind) if one.init]
    return {one.name: None if one.default is MISSING else one.default for one in every}


def write(folder: str, source: str, keys: Strict) -> None:
    """The list, as facts beside the others."""
    lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(keys[key])}" for key in sorted(keys))
    text = f'{{\n  "source": {json.dumps(source)},\n  "strict": {{\n{lines}\n  }}\n}}\n'
    (TRAINERS / folder / "schema" / "strict.json").write_text(text, encoding="utf-8")


def of_trl() -> None:
    """TrainingArguments', and those of TRL's configs that are not among them."""
    import importlib

    import transformers
    import trl

    plain = defaults([transformers.TrainingArguments])
    found = strict_keys(lambda values: transformers.TrainingArguments(**values), {"output_dir": "out"}, plain)
    write("arguments", f"transformers {transformers.__version__}", found)
    own: Strict = {}
    for kind in ("sft", "dpo", "kto", "reward", "grpo", "rloo"):
        parser = importlib.import_module(f"trl.scripts.{kind}").make_parser()
        keys = {key: value for key, value in defaults(parser.dataclass_types).items() if key not in {**plain, **own}}
        own |= strict_keys(lambda values, parser=parser: parser.parse_dict(values), dict(BASE), keys)
    write("trl", f"TRL {trl.__version__}", own)


def of_llamafactory() -> None:
    """What `get_train_args` stops at, TrainingArguments' of its transformers among them."""
    from importlib.metadata import version

    from llamafactory.hparams import parser

    parser.check_version = lambda *_, **__: None
    parser.is_torch_bf16_gpu_available = lambda *_: True
    keys = defaults(parser._TRAIN_ARGS)
    found = strict_keys(lambda values: parser.get_train_args(dict(values)), dict(LLAMAFACTORY), keys)
    write("llamafactory", f"LLaMA-Factory {version('llamafactory')}", found)


def main() -> None:
    """The trainer that is named."""
    import transformers.training_args as arguments

    arguments.is_torch_bf16_gpu_available = arguments.is_torch_tf32_available = lambda *_: True
    {"trl": of_trl, "llamafactory": of_llamafactory}[sys.argv[1]]()


if __name__ == "__main__":
    main()
