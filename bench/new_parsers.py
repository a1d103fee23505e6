"""Do the trainers' own parsers accept the configs of `new_table.py`? In an environment with the trainer and torch:

    python bench/new_parsers.py FOLDER trl|axolotl|llamafactory|unsloth [SITE]

FOLDER is the one of new_table.py. SITE: a folder of packages to take what is not installed from. TRL's configs go
through TrlParser, LLaMA-Factory's through get_train_args, Axolotl's through its pydantic schema. An Unsloth script is
not run: its SFTConfig is made, and the other calls are held against the signatures in Unsloth's source. A machine
without a card passes for one with bf16. A line a config that is refused.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml


def pass_for_a_card() -> None:
    """TrainingArguments ask the card whether it has bf16."""
    import transformers.training_args
    import transformers.utils

    for module in (transformers.training_args, transformers.utils):
        module.is_torch_bf16_gpu_available = lambda: True
    transformers.training_args.is_torch_available()


def of_trl(path: Path) -> None:
    """As `trl sft --config` does."""
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig, TrlParser

    before = dict(os.environ)
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig))
    parser.parse_args_and_config(["--config", str(path)])
    os.environ.clear()
    os.environ.update(before)


def of_axolotl(path: Path) -> None:
    """Its schema, without what it asks of the machine."""
    from axolotl.utils.schemas.config import AxolotlInputConfig

    AxolotlInputConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def of_llamafactory(path: Path) -> None:
    """As `llamafactory-cli train` does, up to the model."""
    from llamafactory.hparams import get_train_args

    get_train_args(yaml.safe_load(path.read_text(encoding="utf-8")))


def of_unsloth(path: Path) -> None:
    """Every argument of its calls is one that the call knows."""
    from trl import SFTConfig

    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {
        ast.unparse(node.func): {word.arg: word.value for word in node.keywords if word.arg}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    SFTConfig(**{name: ast.literal_eval(value) for name, value in found["SFTConfig"].items()})
    for call, names in _signatures().items():
        strange = found.get(f"FastLanguageModel.{call}", {}).keys() - names
        if strange:
            raise ValueError(f"{call} does not know {', '.join(sorted(strange))}")


def _signatures() -> dict[str, set[str]]:
    spec = find_spec("unsloth")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "models"
    found = {}
    for file, call in (("loader.py", "from_pretrained"), ("llama.py", "get_peft_model")):
        tree = ast.parse((folder / file).read_text(encoding="utf-8"))
        node = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == call)
        found[call] = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
    return found


PARSERS: dict[str, Callable[[Path], Any]] = {
    "trl": of_trl,
    "axolotl": of_axolotl,
    "llamafactory": of_llamafactory,
    "unsloth": of_unsloth,
}


def main() -> None:
    """Parse every config of one trainer."""
    folder, trainer = Path(sys.argv[1]), sys.argv[2]
    del sys.path[0]  # this folder, whose files have names of trainers
    sys.path += [str(Path(site).resolve()) for site in sys.argv[3:]]
    os.chdir(folder)
    pass_for_a_card()
    refused = 0
    files = sorted(Path("configs").glob(f"*.{trainer}.*"))
    for path in files:
        try:
            PARSERS[trainer](path)
        except (Exception, SystemExit) as error:
            refused += 1
            print(f"{path.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(f"{trainer}: {len(files) - refused} of {len(files)} configs are accepted by its own parser")


if __name__ == "__main__":
    main()
