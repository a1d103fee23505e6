"""Runs of real trainers as 2 or 4 ranks that share one card, and what each rank takes: one JSON line a run.

    python rank_runs.py OUT_DIR --cases rank_cases.json [--slots 8] [--seconds 520] [--only word,word]

A case: `name: {"trainer": "axolotl" | "trl" | "llamafactory", "method": "sft", "world": 2, "model": ..., "config": {},
"zero": {}, "accelerate": {}, "cuda": "fake" | "gloo" | "nccl", "frames": false}`. `zero`: DeepSpeed's file;
`accelerate`: the file that `accelerate launch` is given. Models, data and configs are those of `axolotl_runs.py`, ranks
those of `rank_start.py`. The first rank's allocator events go to OUT_DIR/traces.tar, with `frames` those of Python too.
Environment: SITES names a folder with `axolotl-0.21` (Axolotl and TRL) and `llamafactory` (laid over the first); SHIM
one with stand-ins that Axolotl imports; LLAMAFACTORY_EXTRA one with a stand-in for torchaudio. `--without-nccl`: NCCL
refuses two ranks on this card, so cases of two ranks that want it exchange through gloo.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import axolotl_runs as runs

BASE = "axolotl-0.21"
LAYERS = {"axolotl": (BASE, "pyarrow"), "trl": (BASE, "pyarrow"), "llamafactory": ("llamafactory", BASE, "pyarrow")}
LONGEST_RUN_S = 110
FIRST_PORT = 29600
SHORTEST_RUN_S = 40
ROOM_FOR_A_MODEL = 8 << 30


def environment(trainer: str, alloc: str) -> dict[str, str]:
    """What a rank sees, before it is told which one it is."""
    made = runs.environment(BASE, alloc, trainer)
    layers = [runs.SITES / layer for layer in LAYERS[trainer]]
    # a flash_attn without metadata stops LLaMA-Factory's transformers
    more = {"axolotl": runs.SHIM, "llamafactory": [os.environ.get("LLAMAFACTORY_EXTRA", "")]}.get(trainer, [])
    folders = (*layers, *(folder for folder in more if folder), runs.HERE)
    path = ":".join(str(folder) for folder in folders)
    quiet = {
        "DS_BUILD_OPS": "0",
        "DS_SKIP_CUDA_CHECK": "1",
        "DISABLE_VERSION_CHECK": "1",
        "AXOLOTL_DATASET_NUM_PROC": "1",
    }
    return {**made, "PYTHONPATH": path, **quiet}


class Server(runs.Server):
    """The same, with more than one site."""

    def __init__(self, trainer: str, alloc: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(runs.HERE / "fork_server.py")],
            env=environment(trainer, alloc),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def config_of(name: str, case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The whole config of a case, and its files beside it."""
    config = runs.config_of(name, case if case["trainer"] != "axolotl" else {**case, "trainer": None})
    if "zero" in case:
        (folder / "ds.json").write_text(json.dumps(case["zero"]))
        config["deepspeed"] = str(folder / "ds.json")
    if case["trainer"] == "axolotl":
        config["plugins"] = ["axolotl_watch.Watch"]
    return config


def start(name: str, case: dict[str, Any], server: Server, port: int) -> list[tuple[int, Path]]:
    """Start every rank of a run; their process ids and folders."""
    started = []
    for rank in range(case["world"]):
        folder = runs.WORK / "ranks" / name / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yml").write_text(json.dumps(config_of(name, case, folder)))
        (folder / "method").write_text(case.get("method", "sft"))
        (folder / "trace").write_text("" if rank else "1")
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(case["world"]),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANKS_CUDA": case.get("cuda", "fake"),
            "RANKS_ACCELERATE": "",
            "WATCH_FRAMES": "1" if case.get("frames") else "",
        }
        if "accelerate" in case:
            (folder / "accelerate.yaml").write_text(json.dumps(case["accelerate"]))
            env["RANKS_ACCELERATE"] = str(folder / "accelerate.yaml")
        (folder / "environment").write_text(json.dumps(env))
        started.append((server.start(folder), folder))
    return started


def row_of(name: str, case: dict[str, Any], folders: list[Path], seconds: float) -> dict[str, Any]:
    """What a finished run left."""
    config = runs._without_places(json.loads((folders[0] / "config.yml").read_text()))
    for key in ("deepspeed", "plugins"):
        config.pop(key, None)
    codes = [int((f / "rc").read_text()) if (f / "rc").exists() else -9 for f in folders]
    row = {
        "name": name,
        "trainer": case["trainer"] if case["trainer"] != "trl" else f"trl:{case['method']}",
        "world": case["world"],
        "config": config,
        "zero": case.get("zero"),
        "accelerate": case.get("accelerate"),
        "cuda": case.get("cuda", "fake"),
        "alloc_conf": case.get("alloc", "expandable_segments:True"),
        "model": runs.MODELS[case["model"]],
        "rc": codes,
        "seconds": round(seconds, 1),
        "ranks": [json.loads((f / "watch.json").read_text()) if (f / "watch.json").exists() else None for f in folders],
    }
    if any(codes):
        row["tail"] = (folders[0] / "log").read_text(errors="replace")[-2000:]
    return row


def keep_trace(folder: Path, archive: Path, name: str) -> None:
    """The first rank's allocator events, compressed, as one more file of the archive."""
    if (folder / "trace.json").exists():
        with tarfile.open(archive, "a") as file:
            packed = lzma.compress((folder / "trace.json").read_bytes(), preset=1)
            entry = tarfile.TarInfo(f"{name}.json.xz")
            entry.size = len(packed)
            file.addfile(entry, io.BytesIO(packed))


class Queue:
    """Cases that wait, those that run, and where what they leave is written."""

    def __init__(self, out: Path, cases: dict[str, dict[str, Any]], slots: int, end: float) -> None:
        self.out, self.cases, self.slots, self.end = out, cases, slots, end
        self.todo = list(cases)
        self.running: dict[str, tuple[list[tuple[int, Path]], float]] = {}
        self.port = FIRST_PORT
        self.servers = {key: Server(*key) for key in sorted({self._server(name) for name in cases})}
        self.packing = ThreadPoolExecutor(1)

    def _server(self, name: str) -> tuple[str, str]:
        case = self.cases[name]
        return case["trainer"], case.get("alloc", "expandable_segments:True")

    def begin(self) -> None:
        """Start cases in their order, as long as ranks find room, models are there and time is left."""
        while self.todo and time.time() < self.end - SHORTEST_RUN_S:
            case = self.cases[self.todo[0]]
            busy = sum(self.cases[name]["world"] for name in self.running)
            if busy + case["world"] > self.slots or not (runs.WORK / "models" / case["model"]).exists():
                return
            name = self.todo.pop(0)
            self.port += 1
            self.running[name] = (start(name, case, self.servers[self._server(name)], self.port), time.time())

    def collect(self) -> None:
        """Write down what has ended; end what takes too long, and what waits for a rank that failed."""
        for name, (ranks, started) in list(self.running.items()):
            codes = [int((f / "rc").read_text()) if (f / "rc").exists() else None for _, f in ranks]
            late = time.time() - started > LONGEST_RUN_S or time.time() > self.end
            if None in codes and not late and not any(codes):
                continue
            if None in codes and any(codes):
                time.sleep(2)
            for pid, folder in ranks:
                if not (folder / "rc").exists():
                    subprocess.run(["kill", "-9", str(pid)], check=False)
            del self.running[name]
            self._write(name, [folder for _, folder in ranks], time.time() - started)
            self._remove(name)

    def _write(self, name: str, folders: list[Path], seconds: float) -> None:
        row = row_of(name, self.cases[name], folders, seconds)
        with (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.packing.submit(keep_trace, folders[0], self.out / "traces.tar", name)
        if any(row["rc"]):
            with (self.out / "failed.log").open("a") as file:
                logs = [(folder / "log").read_text(errors="replace")[-5000:] for folder in folders[:2]]
                file.write(f"=== {name}\n" + "\n--- next rank\n".join(logs) + "\n")
        first = row["ranks"][0] or {}
        shown = [round(step[2]) for step in first.get("steps", [])][-1:]
        print(name, "rc", row["rc"], first.get("load_peak_reserved_mib"), shown, f"{row['seconds']} s", flush=True)

    def _remove(self, name: str) -> None:
        """What would fill the disk: trained weights, and a model that nothing else uses."""
        shutil.rmtree(runs.WORK / "out" / name, ignore_errors=True)
        model = self.cases[name]["model"]
        if all(self.cases[other]["model"] != model for other in (*self.todo, *self.running)):
            shutil.rmtree(runs.WORK / "models" / model, ignore_errors=True)


def main() -> None:
    """Run the cases, as many ranks at once as allowed, until done or out of time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--only", default="")
    parser.add_argument("--without-nccl", action="store_true")
    arguments = parser.parse_args()
    began = time.time()
    cases = json.loads(arguments.cases.read_text())
    cases = {name: case for name, case in cases.items() if any(word in name for word in arguments.only.split(","))}
    if arguments.without_nccl:
        shared = {name for name, case in cases.items() if case.get("cuda") == "nccl" and case["world"] > 1}
        cases = {name: {**case, "cuda": "gloo"} if name in shared else case for name, case in cases.items()}
    runs.WORK.mkdir(exist_ok=True)
    runs.data()
    needed = list(dict.fromkeys(case["model"] for case in cases.values()))
    code = f"import axolotl_runs as r; r.ROOM_FOR_A_MODEL = {ROOM_FOR_A_MODEL}; r.make({needed!r})"
    making = subprocess.Popen([sys.executable, "-c", code], env=environment("axolotl", ""), cwd=runs.HERE)
    queue = Queue(arguments.out, cases, arguments.slots, began + arguments.seconds)
    while queue.running or (queue.todo and time.time() < queue.end - SHORTEST_RUN_S):
        if making.poll():
            sys.exit("the models could not be made")
        queue.begin()
        time.sleep(0.3)
        queue.collect()
    queue.packing.shutdown()
    print("not run:", queue.todo, f"{time.time() - began:.0f} s", flush=True)
    for process in (making, *(server.process for server in queue.servers.values())):
        process.kill()


if __name__ == "__main__":
    os.umask(0o022)
    main()
