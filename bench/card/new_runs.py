"""Runs the cases that `new_cases.py` wrote: `SITES=... python run_new.py OUT [--jobs 3] [--seconds 500]`.

$SITES is a folder of folders with packages, torch apart; each case names those that it needs. $SHIM (else `shim` beside
this file) is a folder with stand-ins for flash_attn, numba and wandb, for Axolotl and TRL. Each process may take
as much as its target card has. Models are made one after another while others train, in memory where there is room
for them ($NEW_WORK names another folder), and removed after their last case. A line goes to OUT/results.jsonl after
each case; cases that are in it already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
LONGEST_S = 280
# What a process takes beside its allocator, what all may take of the card at once, and models of the place they are in.
CONTEXT_BYTES = 2 * GIB
CARD_BYTES = int(float(os.environ.get("NEW_CARD_GIB", "100")) * GIB)
MODELS_BYTES = int(float(os.environ.get("NEW_DISK_GIB", "40")) * GIB)
LEFT_FREE_BYTES = 4 * GIB
BYTES_A_PARAMETER = 2
MAKES_MODELS = ("axolotl-0.21",)


def _workplace() -> Path:
    """Memory where it holds the largest two models, else the temporary folder."""
    shared = Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > MODELS_BYTES
    return Path(os.environ.get("NEW_WORK") or (shared if roomy else Path("/tmp")) / "new-on-card")


WORK = _workplace()


def with_shim() -> Path:
    """A folder with the stand-ins, and the word that flash-attn is installed."""
    shim = WORK / "shim"
    given = Path(os.environ.get("SHIM", HERE / "shim"))
    if given.is_dir() and not shim.exists():
        shutil.copytree(given, shim)
        meta = shim / "flash_attn-2.8.3.dist-info"
        if any(shim.glob("flash_attn-*.dist-info")):
            return shim
        meta.mkdir()
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n")
        (meta / "RECORD").write_text("flash_attn/__init__.py,,\nflash_attn-2.8.3.dist-info/METADATA,,\n")
        (meta / "top_level.txt").write_text("flash_attn\n")
    return shim


def environment(sites: tuple[str, ...], case: dict[str, Any] | None = None) -> dict[str, str]:
    """For a child: the packages, the allocator of the config, nothing from a network."""
    told = {"HF_HUB_OFFLINE": "1", "UNSLOTH_DISABLE_STATISTICS": "1", "AXOLOTL_DO_NOT_TRACK": "1"}
    told |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "2", "WANDB_DISABLED": "true"}
    told |= {"CUDA_VISIBLE_DEVICES": "0", "AXOLOTL_DATASET_NUM_PROC": "2"}
    paths = [*(Path(os.environ["SITES"]) / site for site in sites), HERE]
    if case is not None:
        told |= {"PYTORCH_CUDA_ALLOC_CONF": case["alloc"], "PYTORCH_ALLOC_CONF": case["alloc"]}
        told["WATCH_LIMIT_MIB"] = str(case["limit_bytes"] // MIB)
        paths += [] if case["trainer"] in ("unsloth", "llamafactory") else [with_shim()]
    return {**os.environ, **told, "PYTHONPATH": os.pathsep.join(map(str, paths))}


MAKE = """
import sys, torch
from pathlib import Path
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights
folder = Path(sys.argv[1])
with torch.device("cuda"), no_init_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
with torch.no_grad():
    for label, parameter in model.named_parameters():
        parameter.fill_(1.0) if "norm" in label else parameter.normal_(0, 0.02)
model.tie_weights()
model.save_pretrained(folder)
(folder / "done").write_text(str(sum(one.numel() for one in model.parameters())))
"""


class Models:
    """Random weights beside the shapes and tokenizers, one model after another, as the disk has room."""

    def __init__(self, cases: list[dict[str, Any]], out: Path) -> None:
        self.out = out
        self.sizes = {case["model"]: case["parameters"] * BYTES_A_PARAMETER for case in cases}
        self.order = list(dict.fromkeys(case["model"] for case in cases))
        self.made: set[str] = set()
        self.failed: set[str] = set()
        self.making: tuple[str, subprocess.Popen[bytes]] | None = None

    def look(self) -> None:
        """See whether the one that is being made is done."""
        if self.making is not None and self.making[1].poll() is not None:
            name, process = self.making
            self.making = None
            (self.failed if process.returncode else self.made).add(name)
            print(f"model {name}: rc {process.returncode}", flush=True)

    def make_next(self, free_bytes: int) -> None:
        """Begin another, where the card has so much for it."""
        if self.making is not None or not self.order or self.sizes[self.order[0]] + CONTEXT_BYTES > free_bytes:
            return
        held = sum(self.sizes[name] for name in self.made)
        room = min(MODELS_BYTES - held, shutil.disk_usage(WORK).free - LEFT_FREE_BYTES)
        if self.sizes[self.order[0]] <= room or not self.made:
            name = self.order.pop(0)
            folder = WORK / "models" / name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(HERE / "models" / name, folder)
            words = [sys.executable, "-c", MAKE, str(folder)]
            with (self.out / "models.log").open("a") as log:
                self.making = name, subprocess.Popen(words, env=environment(MAKES_MODELS), stdout=log, stderr=log)

    @property
    def on_card_bytes(self) -> int:
        """What the one that is being made takes of the card."""
        return 0 if self.making is None else self.sizes[self.making[0]] + CONTEXT_BYTES

    def drop(self, name: str) -> None:
        """It is needed no more."""
        self.made.discard(name)
        shutil.rmtree(WORK / "models" / name, ignore_errors=True)


def begin(case: dict[str, Any]) -> subprocess.Popen[bytes]:
    """One config in a process and a folder of its own."""
    folder = WORK / "runs" / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "models").symlink_to(WORK / "models")
    for needed in (HERE / "data.jsonl", HERE / "dataset_info.json", HERE / "configs" / case["file"]):
        shutil.copy(needed, folder)
    own = {"WATCH_OUT": str(folder / "watch.json"), "UNSLOTH_COMPILE_LOCATION": str(folder / "compiled")}
    own |= {"TRITON_CACHE_DIR": str(WORK / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(WORK / "inductor")}
    own |= {"HF_HOME": str(folder / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    with (folder / "log").open("w") as log:
        words = [sys.executable, str(HERE / "new_child.py"), case["trainer"], case["file"]]
        environ = {**environment(case["sites"], case), **own}
        return subprocess.Popen(words, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def _predicted() -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in (HERE / "predictions.jsonl").read_text().splitlines()]
    return {row["name"]: row for row in rows}


def ended(case: dict[str, Any], code: int, seconds: float, out: Path) -> None:
    """Write down what it took, beside what was predicted."""
    predicted = _predicted()[case["name"]]
    folder = WORK / "runs" / case["name"]
    row: dict[str, Any] = {**case, "rc": code, "seconds": round(seconds, 1)}
    watched = folder / "watch.json"
    seen = json.loads(watched.read_text()) if watched.exists() else {}
    row |= {"watched": seen, "predicted": predicted}
    row["log"] = (folder / "log").read_text(errors="replace")[-6000:]
    with (out / "results.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    took = max(seen.get(key, 0.0) for key in ("load_overall_reserved_mib", "overall_reserved_mib"))
    said = predicted["reserved_on_h200_bytes"] / MIB
    why = "" if code == 0 else row["log"].strip().rpartition("\n")[2][:200]
    print(
        f"{case['name']} rc {code}, {row['seconds']} s, {seen.get('final_step')} steps, reserved {took:.0f} MiB of "
        f"{case['limit_bytes'] / MIB:.0f}, predicted {said:.0f}: {took / said - 1:+.2%} {why}",
        flush=True,
    )


def run(cases: list[dict[str, Any]], jobs: int, out: Path, end: float) -> None:
    """Some side by side, as many as the card's memory holds; what runs at the end is killed."""
    todo, running, models, predicted = list(cases), {}, Models(cases, out), _predicted()

    def share(case: dict[str, Any]) -> int:
        return int(min(case["limit_bytes"], 1.1 * predicted[case["name"]]["reserved_on_h200_bytes"])) + CONTEXT_BYTES

    while (todo or running) and time.time() < end:
        models.look()
        todo = [case for case in todo if case["model"] not in models.failed]
        used = models.on_card_bytes + sum(share(case) for case, _, _ in running.values())
        first = [one for one in todo if not one.get("later")] or todo
        for case in [one for one in first if one["model"] in models.made]:
            if len(running) < jobs and used + share(case) <= CARD_BYTES:
                used += share(case)
                todo.remove(case)
                running[case["name"]] = (case, begin(case), time.time())
        models.make_next(CARD_BYTES - used)
        time.sleep(0.3)
        for name, (case, process, began) in list(running.items()):
            code = process.poll()
            if code is None and time.time() - began > LONGEST_S:
                os.killpg(process.pid, 9)
                code = 124
            if code is not None:
                del running[name]
                ended(case, code, time.time() - began, out)
                shutil.rmtree(WORK / "runs" / name, ignore_errors=True)
                waiting = [*todo, *(one for one, _, _ in running.values())]
                if all(one["model"] != case["model"] for one in waiting):
                    models.drop(case["model"])
    for case, process, began in running.values():
        os.killpg(process.pid, 9)
        ended(case, 124, time.time() - began, out)
    if models.making is not None:
        models.making[1].kill()
    print("not run:", [case["name"] for case in todo], "killed:", list(running), flush=True)


def done_before(out: Path) -> set[str]:
    """The names that have a line already."""
    file = out / "results.jsonl"
    return {json.loads(line)["name"] for line in file.read_text().splitlines()} if file.exists() else set()


def installed(case: dict[str, Any]) -> bool:
    """Whether all of its packages are on this machine."""
    return all((Path(os.environ["SITES"]) / site).is_dir() for site in case["sites"])


def main() -> None:
    """Run the cases that are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--only", default="", help="a part of the names to run")
    asked = parser.parse_args()
    began = time.time()
    asked.out.mkdir(parents=True, exist_ok=True)
    (WORK / "models").mkdir(parents=True, exist_ok=True)
    with_shim()
    listed = [json.loads(line) for line in (HERE / "cases.jsonl").read_text().splitlines()]
    done = done_before(asked.out)
    cases = [case for case in listed if asked.only in case["name"] and case["name"] not in done and installed(case)]
    run(cases, asked.jobs, asked.out, began + asked.seconds)
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"done in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
