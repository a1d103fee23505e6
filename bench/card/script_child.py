"""Runs one adapted script or notebook as it is, watched: `python script_child.py CASES.json NAME ADAPTED`.

Stands in for what a script fetches (datasets of a hub, reporting, logging in), gives its Trainer five steps and no
saving, and ends the process when training ends. `watch.py` writes what the card held to $WATCH_OUT.
"""

from __future__ import annotations

import json
import os
import random
import re
import runpy
import shlex
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

STEPS = 5
ROWS = 260
WORDS = 1500


class Data:
    """Made-up rows: `short` is a sentence, `long` fills any row, chats have two turns, `=a,b` takes turns,
    `same` is one sentence in every row."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.rng = random.Random(4)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.words = ["".join(self.rng.choices(letters, k=self.rng.randint(2, 9))) for _ in range(4000)]
        self.length = case.get("words", WORDS)
        self.columns = case["data"]["columns"]
        self.rows = case["data"].get("rows", ROWS)
        # Few different texts: a table of thousands of rows is made in no time.
        self.same = self.text(12)
        self.texts = [self.text(self.length) for _ in range(40)]

    def text(self, count: int) -> str:
        """So many words."""
        return " ".join(self.rng.choices(self.words, k=count))

    def value(self, kind: str, row: int) -> Any:
        """One field."""
        long, short = self.texts[row % len(self.texts)], self.text(12)
        if kind.startswith("="):
            choices = kind[1:].split(",")
            chosen = choices[row % len(choices)]
            return int(chosen) if chosen.isdigit() else chosen
        if kind == "same":
            return self.same
        if kind == "sharegpt":
            return [{"from": "human", "value": short}, {"from": "gpt", "value": long}]
        if kind == "chat":
            return [{"role": "user", "content": short}, {"role": "assistant", "content": long}]
        return {"long": long, "short": short, "null": None}[kind]

    def table(self) -> list[dict[str, Any]]:
        """All rows."""
        return [{name: self.value(kind, row) for name, kind in self.columns.items()} for row in range(self.rows)]

    def dataset(self) -> Any:
        """All rows, as the library has them."""
        from datasets import Dataset

        return Dataset.from_list(self.table())

    def load(self, *words: Any, split: Any = None, **more: Any) -> Any:
        """`load_dataset` for whatever name."""
        from datasets import DatasetDict

        if split is None:
            return DatasetDict({name: self.dataset() for name in ("train", "validation", "test")})
        if isinstance(split, list | tuple):
            return [self.dataset() for _ in split]
        return self.dataset()


def reporter() -> types.ModuleType:
    """What a script reports to."""
    module = types.ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.__dict__.update(login=print, init=lambda **more: None, finish=lambda: None, log=print)
    return module


def stand_in(data: Data) -> None:
    """What a script fetches or reports to."""
    import datasets
    import huggingface_hub
    import transformers.trainer

    datasets.load_dataset = data.load
    datasets.get_dataset_config_names = lambda *words, **more: ["default"]
    huggingface_hub.login = huggingface_hub.notebook_login = lambda *words, **more: None
    transformers.trainer.get_reporting_integration_callbacks = lambda *words: []
    transformers.Trainer.init_hf_repo = lambda *words, **more: None


def limit_steps() -> None:
    """Every Trainer trains five steps, evaluates behind the third if it evaluates, saves nothing; then all is over."""
    import watch
    from transformers import Trainer, TrainerCallback

    class End(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
            watch.STATE["final_step"] = state.global_step
            watch.finish()
            Path(os.environ["WATCH_OUT"]).write_text(json.dumps(watch.STATE))
            os._exit(0)

    watch.watch_every_trainer()
    made = Trainer.__init__

    def __init__(self: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it takes that one's place)
        made(self, *arguments, **words)
        self.args.max_steps = STEPS
        self.args.save_strategy = type(self.args.save_strategy)("no")
        self.args.load_best_model_at_end = False
        self.args.push_to_hub = False
        if str(getattr(self.args.eval_strategy, "value", self.args.eval_strategy)) != "no":
            self.args.eval_strategy = type(self.args.eval_strategy)("steps")
            self.args.eval_steps = 3
            self.eval_dataset = _few(self.eval_dataset)
        watch.STATE["arguments"] = _shown(self.args)
        self.add_callback(End())

    Trainer.__init__ = __init__


def _few(dataset: Any) -> Any:
    if isinstance(dataset, dict):
        return {name: _few(one) for name, one in dataset.items()}
    return dataset.select(range(min(16, len(dataset)))) if hasattr(dataset, "select") else dataset


def _shown(args: Any) -> dict[str, Any]:
    names = (
        *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "optim", "bf16"),
        *("fp16", "gradient_checkpointing", "max_length", "max_seq_length", "packing", "padding_free"),
    )
    return {name: str(getattr(args, name)) for name in names if hasattr(args, name)}


def write_files(case: dict[str, Any], data: Data) -> None:
    """Modules of the script's own project, and its data where it reads a file."""
    for name, text in case.get("stubs", {}).items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name = case.get("written", "")
    if name.endswith(".json"):
        Path(name).write_text(json.dumps(data.table()))
    elif name.endswith(".parquet"):
        import pandas

        pandas.DataFrame(data.table()).to_parquet(name)


def run(path: Path) -> None:
    """The script, or a notebook's cells in order without their magics."""
    if path.suffix == ".py":
        runpy.run_path(str(path), run_name="__main__")
        return
    names = sys.modules["__main__"].__dict__
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = re.sub(r"^\s*[%!].*$", "", "".join(cell["source"]), flags=re.MULTILINE)
        exec(compile(source, f"cell {number}", "exec"), names)


def main() -> None:
    """One case, in this process and this folder."""
    listed, name, path = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    case = json.loads(listed.read_text())["cases"][name]
    sys.argv = [str(path), *shlex.split(case.get("args", ""))]
    sys.path.insert(0, str(Path.cwd()))
    data = Data(case)
    write_files(case, data)
    if case.get("unsloth"):  # it asks to be imported before what it changes
        import unsloth  # noqa: F401
    stand_in(data)
    limit_steps()
    if "import wandb" in path.read_text():
        sys.modules["wandb"] = reporter()
    run(path)


if __name__ == "__main__":
    main()
