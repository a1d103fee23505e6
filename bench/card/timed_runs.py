"""Times training scripts and Axolotl's configs on a card that they have to themselves: one JSON line each.

    python timed_runs.py OUT_DIR SECONDS CASES.json

Cases are drawn by `draw_speed.py`. Two servers, one for Axolotl and one without it, have imported everything and fork
a child for each case. One child runs at a time, and everything else waits: whoever prepares beside it slows its host.
`step_timer.py` says which steps are timed. A child ends after the last of them, before its Trainer saves a model.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from contextlib import suppress
from multiprocessing import Pipe, active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import axolotl_runs
from fork_server import OWN, spoilt
from host_probe import keep_to_fast_cores, probe
from step_timer import Timer

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("SPEED_WORK", "/dev/shm/speed"))
LOGS = WORK / "logs"
COMMON = (
    *("torch", "transformers", "transformers.trainer", "peft", "accelerate", "datasets", "trl"),
    *("transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2"),
    *("liger_kernel.transformers", "bitsandbytes"),
)
IMPORTED = {"script": (*COMMON, "trl.trainer.sft_trainer"), "axolotl": (*COMMON, *OWN["axolotl"])}
LONGEST_S, LAST_CASE_S = 45, 9
CORES = 4  # that a run may use
# Sizes of a rehearsal on a processor.
REHEARSED = {"num_hidden_layers": 2, "vocab_size": 6400, "hidden_size": 64, "intermediate_size": 128}
REHEARSED |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def child(name: str, case: dict[str, Any], folder: Path) -> None:
    """One script, in this process."""
    os.setsid()
    log = os.open(LOGS / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import torch
    from transformers import Trainer

    os.chdir(WORK / "models")
    began = time.perf_counter()
    row: dict[str, Any] = {"name": name, "torch": torch.__version__, **case, "cores": keep_to_fast_cores(CORES)}
    timers: list[Timer] = []
    made = Trainer.__init__

    def keep(found: dict[str, Any]) -> None:
        """Write down what was seen, then what the host takes by itself, and end."""
        row.update(found)
        for label, look in (("probe", probe), ("host", timers[-1].host_alone)):
            try:
                row[label] = look()
            except Exception:
                traceback.print_exc()
        write(row, folder, time.perf_counter() - began)
        os._exit(0)

    def __init__(self: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it takes that one's place)
        made(self, *arguments, **words)
        timers.append(Timer(self, keep))

    Trainer.__init__ = __init__
    try:
        if torch.cuda.is_available():
            torch.cuda.init()
        _train(name, case)
    except BaseException:
        traceback.print_exc()
    write({**row, "failed": (LOGS / f"{name}.log").read_text()[-3000:]}, folder, time.perf_counter() - began)
    os._exit(1)


def write(row: dict[str, Any], folder: Path, seconds: float) -> None:
    """A line for the run, and one for its kernels in their order."""
    order = row.pop("order", None)
    with (folder / "speed.jsonl").open("a") as file:
        file.write(json.dumps({**row, "seconds": round(seconds, 2)}) + "\n")
    if order is not None:
        with gzip.open(folder / "order.jsonl.gz", "at") as packed:
            packed.write(json.dumps({"name": row["name"], **order}) + "\n")


def _train(name: str, case: dict[str, Any]) -> None:
    """Run the script, or Axolotl with the config."""
    if "script" in case:
        script = LOGS / f"{name}.py"
        script.write_text(case["script"])
        runpy.run_path(str(script), run_name="__main__")
        return
    from axolotl.cli.train import do_cli

    config = LOGS / f"{name}.yml"
    prepared = str(WORK / "prepared" / case["workload"])  # the same for all variants
    config.write_text(json.dumps({**axolotl_runs.config_of(name, case), "dataset_prepared_path": prepared}))
    do_cli(config=str(config))


def data_module() -> ModuleType:
    """`timed_data`: rows of made-up tokens, all of one length."""
    module = ModuleType("timed_data")

    def rows(length: int, count: int = 256) -> Any:
        import numpy
        from datasets import Dataset

        draw = numpy.random.default_rng(3)
        ids = [draw.integers(10, 5000, length).tolist() for _ in range(count)]
        return Dataset.from_dict({"input_ids": ids, "labels": ids})

    module.rows = rows  # type: ignore[attr-defined]
    return module


def make_models(names: list[str]) -> None:
    """Folders with random weights, in a process of its own: the parent must not touch CUDA."""
    pid = os.fork()
    if pid == 0:
        try:
            import random_models
            import torch

            shapes = json.loads((HERE / "models.json").read_text())
            if os.environ.get("SPEED_REHEARSAL"):
                shapes = {name: {**shape, **REHEARSED} for name, shape in shapes.items()}
            words = (axolotl_runs.WORK / "words.txt").read_text()
            device = "cuda" if torch.cuda.is_available() else "cpu"
            random_models.make_models(WORK / "models", {name: shapes[name] for name in names}, words, device)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        sys.exit("the models could not be made")


def warm(names: tuple[str, ...]) -> None:
    """Import these, unless that would keep children from using CUDA.

    bitsandbytes asks for the card's capability when it is imported, which would start CUDA here: it is told.
    """
    import torch

    own, torch.cuda.get_device_capability = torch.cuda.get_device_capability, lambda *_: (9, 0)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"{name} is left to the runs: {error}", flush=True)
    torch.cuda.get_device_capability = own


def serve(asked: Connection, kind: str, folder: Path) -> None:
    """Fork a child for each case that is asked for, and answer when it has ended."""
    warm(IMPORTED[kind])
    sys.modules["timed_data"] = data_module()
    asked.send(not spoilt())
    while True:
        name, case, seconds = asked.recv()
        pid, ending = os.fork(), time.time() + seconds
        if pid == 0:
            child(name, case, folder)
        while not os.waitpid(pid, os.WNOHANG)[0] and time.time() < ending:
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # with what it has started itself
        asked.send(name)


def start(folder: Path) -> dict[str, Connection]:
    """Both servers."""
    found = {}
    for kind in IMPORTED:
        found[kind], theirs = Pipe()
        get_context("fork").Process(target=serve, args=(theirs, kind, folder), daemon=False).start()
    return found


def main() -> None:
    """Run the cases in their order until done or out of time."""
    folder, seconds = Path(sys.argv[1]).resolve(), float(sys.argv[2])
    cases = json.loads(Path(sys.argv[3]).read_text())
    began = time.time()
    for place in (WORK / "models", LOGS):
        place.mkdir(parents=True, exist_ok=True)
    axolotl_runs.data()
    sys.path.insert(0, str(HERE))
    servers = start(folder)
    make_models(sorted({case["model"] for case in cases.values()}))
    for kind, server in servers.items():
        print(kind, "can use CUDA:", server.recv(), f"{time.time() - began:.0f} s", flush=True)
    todo = list(cases)
    while todo and (left := seconds - (time.time() - began)) > LAST_CASE_S:
        name = todo.pop(0)
        server = servers["script" if "script" in cases[name] else "axolotl"]
        server.send((name, cases[name], min(LONGEST_S, left - 2)))
        print(server.recv(), f"{time.time() - began:.0f} s", flush=True)
    print("not run:", todo, flush=True)
    for process in active_children():
        process.kill()


if __name__ == "__main__":
    main()
