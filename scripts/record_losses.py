"""The losses of tiny runs by a real trainer, for tests/data/embedded_losses.json.

    PYTHON_WITH_TRL scripts/record_losses.py trl
    PYTHON_WITH_LLAMAFACTORY scripts/record_losses.py llamafactory

Each prints its cases and what it ran with; the file is the two joined.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "training"))

import embedded_cases as cases


def train(trainer: str, config: str) -> None:
    """What the trainer's own command runs."""
    if trainer == "trl":
        sys.argv = ["trl sft", "--config", config]
        runpy.run_module("trl.scripts.sft", run_name="__main__")
    else:
        sys.argv = ["llamafactory-cli", config]
        import_module("llamafactory.train.tuner").run_exp()


def losses(trainer: str, name: str) -> list[float]:
    """One case, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        os.dup2(2, 1)
        config = json.loads(Path(f"{name}.yml").read_text())
        # a checkpoint holds the losses; this machine's GPU would round otherwise
        Path(f"{name}.yml").write_text(json.dumps({**config, "save_strategy": "epoch", "use_cpu": True}))
        train(trainer, f"{name}.yml")
        os._exit(0)
    os.waitpid(pid, 0)
    state = next(Path(f"out/{name}").glob("checkpoint-*/trainer_state.json"))
    return [round(entry["loss"], 6) for entry in json.loads(state.read_text())["log_history"] if "loss" in entry]


def main() -> None:
    """Print the cases of one trainer."""
    trainer = sys.argv[1]
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        cases.make(Path(folder))
        found = {name: losses(trainer, name) for name in cases.CASES if cases.trainer_of(name) == trainer}
    packages = (trainer, "transformers", "torch")
    origin = ", ".join(f"{package} {version(package)}" for package in packages)
    print(json.dumps({"origin": f"{origin}, on the CPU", "losses": found}))


if __name__ == "__main__":
    main()
