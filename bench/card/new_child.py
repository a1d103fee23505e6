"""One config of `vramwise new`, run as its trainer runs it and watched: `python new_child.py TRAINER FILE`.

The process ends when training ends: nothing is saved. `watch.py` writes what the card held to $WATCH_OUT.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def end_with_training() -> None:
    """Every Trainer is watched, saves nothing, and the process ends with it."""
    import watch
    from transformers import Trainer, TrainerCallback

    class End(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
            watch.STATE["final_step"] = state.global_step
            watch.STATE["losses"] = [row["loss"] for row in state.log_history if "loss" in row]
            watch.finish()
            Path(os.environ["WATCH_OUT"]).write_text(json.dumps(watch.STATE))
            os._exit(0)

    watch.watch_every_trainer()
    made = Trainer.__init__

    def __init__(self: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it takes that one's place)
        made(self, *arguments, **words)
        self.args.save_strategy = type(self.args.save_strategy)("no")
        self.add_callback(End())

    Trainer.__init__ = __init__


def main() -> None:
    """Start the trainer in this process."""
    trainer, file = sys.argv[1:]
    if trainer == "unsloth":  # it asks to be imported before what it changes
        import unsloth  # noqa: F401
    end_with_training()
    if file.endswith(".py"):
        sys.argv = [file]
        runpy.run_path(file, run_name="__main__")
    elif trainer == "axolotl":
        sys.argv = ["axolotl", file]
        runpy.run_module("axolotl.cli.train", run_name="__main__", alter_sys=True)
    elif trainer == "llamafactory":
        from llamafactory.train.tuner import run_exp

        sys.argv = ["llamafactory-cli", file]
        run_exp()
    else:
        sys.argv = ["sft", "--config", file]
        runpy.run_module("trl.scripts.sft", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
