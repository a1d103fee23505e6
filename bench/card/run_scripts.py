"""Runs the prepared scripts on this machine's card: `python run_scripts.py OUT [--jobs 5] [--only NAME]`.

Appends a line to OUT/results.jsonl after each. --site: a folder (or a .tar.xz of one) with transformers, TRL, PEFT,
bitsandbytes and Unsloth; torch is this Python's own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = Path("/tmp/scripts-card")
TIMEOUT = 150
WRITING = Lock()


def site_of(given: str) -> Path:
    """The folder of packages, unpacked if it is an archive."""
    path = Path(given)
    if path.is_dir():
        return path.resolve()
    target = WORK / "site"
    if not target.exists():
        with tarfile.open(path) as archive:
            archive.extractall(target, filter="data")
    inner = target / "site"
    return inner if inner.is_dir() else target


def environment(site: Path, device: str) -> dict[str, str]:
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


def run_one(name: str, case: dict[str, Any], env: dict[str, str], out: Path) -> None:
    """One script in a process and a folder of its own; its figures, or why there are none."""
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
    began = time.time()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**env, **own}, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = 124
    row: dict[str, Any] = {"name": name, "rc": code, "seconds": round(time.time() - began, 1)}
    if watched.exists():
        row["watched"] = json.loads(watched.read_text())
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
    parser.add_argument("--only", default="", help="names to run, with commas between")
    parser.add_argument("--tiny", action="store_true", help="tiny models: a rehearsal on the CPU")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    told = json.loads((HERE / "cases.json").read_text())
    names = [name for name in told["cases"] if not asked.only or name in asked.only.split(",")]
    device = "cpu" if asked.tiny else "cuda"
    env = environment(site_of(asked.site), device)
    began = time.time()
    make_models(told, {told["cases"][name]["shape"] for name in names}, env, device=device, tiny=asked.tiny)
    print(f"models made in {time.time() - began:.0f} s", flush=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(lambda name: run_one(name, told["cases"][name], env, asked.out.resolve()), names))
    print(f"done in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
