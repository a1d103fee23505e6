"""Stand-ins for other trainers and what they stand on: small packages of the same names, for a child process.

The Trainer writes a checkpoint after its second step and runs out of memory in the third with more than one row.
"""

import sys
from pathlib import Path

TORCH = """
class cuda:
    is_available = staticmethod(lambda: False)
"""
TRANSFORMERS = """
import json, os, signal
from pathlib import Path
from types import SimpleNamespace

seeds = []
set_seed = seeds.append

class TrainerCallback:
    pass

class Trainer:
    def __init__(self, config):
        self.callbacks, self.config = [], config
        self.args = SimpleNamespace(
            output_dir=config["output_dir"],
            per_device_train_batch_size=config["per_device_train_batch_size"],
            gradient_accumulation_steps=config.get("gradient_accumulation_steps", 1),
            per_device_eval_batch_size=config.get("per_device_eval_batch_size", 8),
            world_size=1,
        )
        self.state = SimpleNamespace(global_step=0, max_steps=4)

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def tell(self, event):
        control = SimpleNamespace(should_training_stop=False, should_evaluate=False, should_save=False)
        for callback in self.callbacks:
            getattr(callback, event, lambda *words, **more: None)(self.args, self.state, control)
        return control.should_training_stop

    def evaluate(self):
        if self.args.per_device_eval_batch_size > 2 and self.config.get("eval_strategy", "no") != "no":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.tell("on_evaluate")

    def train(self, resume_from_checkpoint=None):
        folder = Path(self.args.output_dir)
        with (folder / "seen.txt").open("a") as file:
            file.write(f"{self.args.per_device_train_batch_size} {self.args.gradient_accumulation_steps} "
                       f"{resume_from_checkpoint}\\n")
        self.tell("on_train_begin")
        for step in range(4):
            self.tell("on_step_begin")
            if step == 2 and self.args.per_device_train_batch_size > 1:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            self.state.global_step = step + 1
            if self.config.get("run_name") == "stopped":
                os.kill(os.getpid(), signal.SIGTERM)
            if self.tell("on_step_end"):
                break
            self.evaluate()
            if step == 1:
                (folder / "checkpoint-2").mkdir(exist_ok=True)
                (folder / "checkpoint-2" / "trainer_state.json").write_text(json.dumps({"global_step": 2}))
        self.tell("on_train_end")
"""
# What `trl KIND --config FILE` does, in few words: accelerate launch is a child of the same Python.
TRL_COMMAND = """
from pathlib import Path

def main(words):
    from trl.cli import accelerate_launcher
    kind, _, file, *launch = words
    text = Path(file).read_text()
    accelerate_launcher.launch_training_script(
        script_name=f"{kind}.py", launch_args=launch, training_script_args=["--config", file]
    )
    return 0
"""
TRL_LAUNCHER = """
import os, subprocess, sys

def launch_training_script(script_name, launch_args, training_script_args):
    print("accelerate launch", *launch_args, os.environ.get("PYTORCH_ALLOC_CONF"), flush=True)
    subprocess.run([sys.executable, script_name, *training_script_args], check=True)
"""
TRL_SCRIPT = """
import sys
import yaml
from transformers import Trainer, seeds

if __name__ == "__main__":
    assert sys.argv[1] == "--config"
    config = yaml.safe_load(open(sys.argv[2]))
    assert seeds == [config.get("seed", 42)]  # before it reads the data
    Trainer(config).train(resume_from_checkpoint=config.get("resume_from_checkpoint"))
    open(config["output_dir"] + "/finished", "w").close()
"""
LLAMAFACTORY = """
import sys
import yaml
from transformers import Trainer

def run_exp():
    config = yaml.safe_load(open(sys.argv[1]))
    Trainer(config).train(resume_from_checkpoint=config.get("resume_from_checkpoint"))
    open(config["output_dir"] + "/finished", "w").close()
"""
FILES = {
    "torch/__init__.py": TORCH,
    "transformers/__init__.py": TRANSFORMERS,
    "trl/__init__.py": "",
    "trl/cli/__init__.py": "",
    "trl/cli/main.py": TRL_COMMAND,
    "trl/cli/accelerate_launcher.py": TRL_LAUNCHER,
    "trl/scripts/__init__.py": "",
    "trl/scripts/sft.py": TRL_SCRIPT,
    "llamafactory/__init__.py": "",
    "llamafactory/train/__init__.py": "",
    "llamafactory/train/tuner.py": LLAMAFACTORY,
}
COMMANDS = ("trl", "llamafactory-cli")


def install(folder: Path, monkeypatch) -> None:
    """Put all of them on the paths: commands for us, packages for the children."""
    for name, text in FILES.items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "bin").mkdir()
    for name in COMMANDS:
        command = folder / "bin" / name
        command.write_text(f"#!{sys.executable}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"))
