"""Imports what a trainer ($TRAINER: axolotl, trl, llamafactory) needs, then forks a child for each folder
that standard input names. Makes the file $READY, if that is set, when everything is imported.

See `axolotl_runs.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

TRAINER = os.environ.get("TRAINER", "axolotl")
OUT = os.dup(1)  # answers go here; what else is printed, goes to standard error
os.set_inheritable(OUT, True)
COMMON = (
    *("torch", "transformers", "datasets", "peft", "accelerate", "transformers.trainer", "trl"),
    *("transformers.models.llama.modeling_llama", "bitsandbytes"),
)
OWN = {
    "axolotl": (
        # not axolotl.core.builders: it imports TRL's trainers, which up to 0.20 Axolotl patches before it does
        *("axolotl.cli.train", "axolotl.loaders", "axolotl.integrations.liger", "axolotl.monkeypatch.lora_kernels"),
    ),
    "trl": ("trl.trainer.sft_trainer", "trl.trainer.dpo_trainer"),
    "llamafactory": ("llamafactory.train.tuner",),
}


def warm() -> None:
    """Import what a run imports; where that touches CUDA, which children could not use then, it is left to them."""
    if os.environ.get("NOT_WARM"):
        return
    import torch

    ask, found = torch.cuda.get_device_capability, _capability()
    if found is not None:
        torch.cuda.get_device_capability = lambda *_: found  # bitsandbytes asks when it is imported
    for name in (*COMMON, *OWN[TRAINER]):
        try:
            importlib.import_module(name)
        except Exception as error:  # a run may do without it
            print(f"{name} cannot be imported: {error}", file=sys.stderr, flush=True)
    torch.cuda.get_device_capability = ask
    if spoilt():
        print("an import touched CUDA: left to the runs", file=sys.stderr, flush=True)
        os.environ["NOT_WARM"] = "1"
        os.dup2(OUT, 1)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def spoilt() -> bool:
    """Whether CUDA is in use here already, so that children could not use it."""
    import torch

    child = os.fork()
    if child == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return bool(os.waitpid(child, 0)[1])


def _capability() -> tuple[int, int] | None:
    """The card's compute capability, asked of the driver's tool."""
    try:
        asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    major, minor = text.split(".")
    return int(major), int(minor)


def run(folder: Path) -> None:
    """One run, in a process of its own."""
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    os.environ["WATCH_OUT"] = str(folder / "watch.json")
    os.environ["WATCH_FRAMES"] = "1" if "@19" in folder.name else ""
    os.environ["WATCH_TRACE"] = str(folder / "trace.json") if (folder / "trace").read_text() else ""
    os.environ |= json.loads((folder / "environment").read_text())
    code = 0
    try:
        if os.environ.get("RANKS_CUDA"):
            import rank_start

            if os.environ.get("RANKS_ACCELERATE"):
                rank_start.launched_by_accelerate(os.environ["RANKS_ACCELERATE"])
            rank_start.share_one_card()
        train(str(folder / "config.yml"))
    except SystemExit as end:
        code = int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        try:
            import watch

            watch.finish()
        except Exception:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        (folder / "rc.part").write_text(str(code))
        (folder / "rc.part").rename(folder / "rc")
        os._exit(code)


def train(config: str) -> None:
    """What the trainer's own command does with a config, in this process."""
    if TRAINER == "axolotl":
        from axolotl.cli.train import do_cli

        do_cli(config=config)
        return
    import watch

    watch.watch_every_trainer()
    if TRAINER == "trl":
        script = importlib.import_module(f"trl.scripts.{Path(config).with_name('method').read_text()}")
        sys.argv = ["trl"]
        script.main(*script.make_parser().parse_args_and_config(["--config", config], fail_with_unknown_args=False))
    else:
        from llamafactory.train.tuner import run_exp

        sys.argv = ["llamafactory-cli", config]
        run_exp()


def main() -> None:
    """Serve folders until standard input ends."""
    os.dup2(2, 1)  # imports may print
    warm()
    if os.environ.get("READY"):
        Path(os.environ["READY"]).touch()
    for line in sys.stdin:
        while True:  # collect children that have ended
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        pid = os.fork()
        if pid == 0:
            run(Path(line.strip()))
        os.write(OUT, f"{pid}\n".encode())


if __name__ == "__main__":
    main()
