"""Runs the prepared scripts on this machine's card: `run_scripts.py OUT --site FOLDERS [--jobs 4] [--only NAME]`.

Appends a line to OUT/results.jsonl after each. --site: folders with transformers, TRL, PEFT and bitsandbytes, as in
$PYTHONPATH; torch is this Python's own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = Path("/tmp/scripts-card")
TIMEOUT = 170
LEAST = 30  # seconds: no script trains in less
TRACED: list[str] = []
WRITING = Lock()


def environment(site: str, device: str) -> dict[str, str]:
    """For a child: the packages, nothing from a network."""
    told = {
        "PYTHONPATH": f"{site}{os.pathsep}{HERE}",
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "2",
        "WANDB_DISABLED": "true",
    }
    return {**os.environ, **told, **({"CUDA_VISIBLE_DEVICES": "0"} if device == "cuda" else {})}


def run_one(name: str, case: dict[str, Any], env: dict[str, str], out: Path, until: float) -> None:
    """One script in a process and a folder of its own; its figures, or why there are none."""
    left = until - time.time()
    if left < LEAST:
        return
    folder = WORK / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    watched = folder / "watch.json"
    watched.unlink(missing_ok=True)
    suffix = Path(case["file"]).suffix
    command = [
        sys.executable,
        str(HERE / "script_child.py"),
        str(HERE / "cases.json"),
        name,
        str(HERE / "adapted" / f"{name}{suffix}"),
    ]
    own = {"WATCH_OUT": str(watched), "TRITON_CACHE_DIR": str(folder / "triton")}
    if name in TRACED:
        own |= {"WATCH_TRACE": str(folder / "trace.json"), "WATCH_FRAMES": "1"}
    began = time.time()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**env, **own}, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(min(TIMEOUT, left))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = 124
    row: dict[str, Any] = {"name": name, "rc": code, "seconds": round(time.time() - began, 1)}
    if watched.exists():
        row["watched"] = json.loads(watched.read_text())
    if (folder / "trace.json").exists():
        (out / f"trace_{name}.json.gz").write_bytes(gzip.compress((folder / "trace.json").read_bytes()))
    row["log"] = (folder / "log").read_text(errors="replace")[-2500:]
    with WRITING, (out / "results.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
        seen = row.get("watched", {})
        peaks = [round(seen[key]) for key in ("load_overall_reserved_mib", "overall_reserved_mib") if key in seen]
        why = "" if code == 0 else row["log"].strip().rpartition("\n")[2][:160]
        print(name, code, f"{row['seconds']} s, reserved {peaks}, steps {seen.get('final_step')} {why}", flush=True)


def make_models(told: dict[str, Any], needed: set[str], env: dict[str, str], *, device: str, tiny: bool) -> None:
    """Random weights for every shape that is used, by a Python that has transformers."""
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400}
    shapes = {name: {**told["shapes"][name], **(small if tiny else {})} for name in sorted(needed)}
    (WORK / "shapes.json").write_text(json.dumps(shapes))
    words = [str(HERE / "script_models.py"), told["models"], str(WORK / "shapes.json"), device]
    subprocess.run([sys.executable, *words], env=env, check=True, timeout=400)


def main() -> None:
    """Make the models, then run the scripts side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--site", required=True)
    parser.add_argument("--unsloth", default="", help="folders that come before these for Unsloth; without: none runs")
    parser.add_argument("--only", default="", help="names to run, with commas between")
    parser.add_argument("--traced", default="", help="names whose allocator events are kept")
    parser.add_argument("--seconds", type=float, default=3600, help="no script runs longer than until then")
    parser.add_argument("--tiny", action="store_true", help="tiny models: a rehearsal on the CPU")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    told = json.loads((HERE / "cases.json").read_text())
    names = [
        name
        for name, case in told["cases"].items()
        if (not asked.only or name in asked.only.split(",")) and (asked.unsloth or not case.get("unsloth"))
    ]
    device = "cpu" if asked.tiny else "cuda"
    env = environment(asked.site, device)
    of_unsloth = environment(f"{asked.unsloth}{os.pathsep}{asked.site}", device)
    TRACED.extend(asked.traced.split(","))
    began = time.time()
    make_models(told, {told["cases"][name]["shape"] for name in names}, env, device=device, tiny=asked.tiny)
    print(f"models made in {time.time() - began:.0f} s", flush=True)
    until = began + asked.seconds

    def run(name: str) -> None:
        case = told["cases"][name]
        run_one(name, case, of_unsloth if case.get("unsloth") else env, asked.out.resolve(), until)

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(run, names))
    print(f"done in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
