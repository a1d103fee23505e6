"""Runs the cases that `new_cases.py` wrote: `SITE_TAR=... python run_new.py OUT [--jobs 3] [--archive unsloth]`.

$SITE_TAR is an archive of packages, torch apart: the one with Unsloth and TRL for `--archive unsloth`, the one with
Axolotl (a folder `sites/0.21.0` in it) for `--archive axolotl`. $SHIM (else `shim` beside this file) is a folder with
stand-ins for flash_attn, numba and wandb: it is used for TRL and Axolotl. Each process may take as much as its target
card has. A line goes to OUT/results.jsonl after each case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("NEW_WORK", "/tmp/new-on-card"))
MIB, GIB = 1 << 20, 1 << 30
LONGEST_S = 230
# What a process takes beside its allocator, and what the card may be asked for at once.
CONTEXT_BYTES, CARD_BYTES = 2 * GIB, 132 * GIB


def site_of(archive: str) -> Path:
    """The folder of packages, unpacked once."""
    target = WORK / f"site-{archive}"
    if not target.exists():
        with tarfile.open(os.environ["SITE_TAR"]) as packed:
            packed.extractall(target, filter="data")
    for inner in ("sites/0.21.0", "0.21.0", "site"):
        if (target / inner).is_dir():
            return target / inner
    return target


def with_shim() -> Path:
    """A folder with the stand-ins, and the word that flash-attn is installed."""
    shim = WORK / "shim"
    given = Path(os.environ.get("SHIM", HERE / "shim"))
    if given.is_dir() and not shim.exists():
        shutil.copytree(given, shim)
        meta = shim / "flash_attn-2.8.3.dist-info"
        meta.mkdir()
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n")
        (meta / "RECORD").write_text("flash_attn/__init__.py,,\nflash_attn-2.8.3.dist-info/METADATA,,\n")
        (meta / "top_level.txt").write_text("flash_attn\n")
    return shim


def environment(case: dict[str, Any] | None, site: Path) -> dict[str, str]:
    """For a child: the packages, the allocator of the config, nothing from a network."""
    told = {"HF_HUB_OFFLINE": "1", "UNSLOTH_DISABLE_STATISTICS": "1", "AXOLOTL_DO_NOT_TRACK": "1"}
    told |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "2", "WANDB_DISABLED": "true"}
    told |= {"CUDA_VISIBLE_DEVICES": "0", "AXOLOTL_DATASET_NUM_PROC": "2"}
    paths = [site, HERE]
    if case is not None:
        told |= {"PYTORCH_CUDA_ALLOC_CONF": case["alloc"], "PYTORCH_ALLOC_CONF": case["alloc"]}
        told["WATCH_LIMIT_MIB"] = str(case["limit_bytes"] // MIB)
        paths += [] if case["trainer"] == "unsloth" else [with_shim()]
    return {**os.environ, **told, "PYTHONPATH": os.pathsep.join(map(str, paths))}


MAKE = """
import sys, torch
from pathlib import Path
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights
for name in sys.argv[2:]:
    folder = Path(sys.argv[1]) / name
    if list(folder.glob("*.safetensors")):
        continue
    with torch.device("cuda"), no_init_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            parameter.fill_(1.0) if "norm" in label else parameter.normal_(0, 0.02)
    model.tie_weights()
    model.save_pretrained(folder)
    print(name, sum(one.numel() for one in model.parameters()), flush=True)
    del model
    torch.cuda.empty_cache()
"""


def make_models(names: set[str], site: Path) -> None:
    """Random weights beside the shapes and tokenizers; the tokenizer's files stay as they are."""
    for name in names:
        if not (WORK / "models" / name).exists():
            shutil.copytree(HERE / "models" / name, WORK / "models" / name)
    words = [sys.executable, "-c", MAKE, str(WORK / "models"), *sorted(names)]
    subprocess.run(words, env=environment(None, site), check=True, timeout=300)


def begin(case: dict[str, Any], site: Path) -> subprocess.Popen[bytes]:
    """One config in a process and a folder of its own."""
    folder = WORK / "runs" / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "models").symlink_to(WORK / "models")
    shutil.copy(HERE / "data.jsonl", folder)
    shutil.copy(HERE / "configs" / case["file"], folder)
    own = {"WATCH_OUT": str(folder / "watch.json"), "TRITON_CACHE_DIR": str(folder / "triton")}
    with (folder / "log").open("w") as log:
        words = [sys.executable, str(HERE / "new_child.py"), case["trainer"], case["file"]]
        environ = {**environment(case, site), **own}
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
    row["watched"] = seen
    row["predicted"] = predicted
    row["log"] = (folder / "log").read_text(errors="replace")[-2500:]
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


def run(cases: list[dict[str, Any]], jobs: int, out: Path, sites: dict[str, Path]) -> None:
    """Some side by side, as many as the card's memory holds."""
    todo, running = list(cases), {}
    while todo or running:
        used = sum(case["limit_bytes"] + CONTEXT_BYTES for case, _, _ in running.values())
        for case in list(todo):
            if len(running) < jobs and used + case["limit_bytes"] + CONTEXT_BYTES <= CARD_BYTES:
                used += case["limit_bytes"] + CONTEXT_BYTES
                todo.remove(case)
                running[case["name"]] = (case, begin(case, sites[case["archive"]]), time.time())
        time.sleep(0.5)
        for name, (case, process, began) in list(running.items()):
            code = process.poll()
            if code is None and time.time() - began > LONGEST_S:
                os.killpg(process.pid, 9)
                code = 124
            if code is not None:
                del running[name]
                ended(case, code, time.time() - began, out)


def main() -> None:
    """Make the models, then run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--archive", choices=["unsloth", "axolotl"], required=True, help="which cases: of $SITE_TAR")
    parser.add_argument("--only", default="", help="a part of the names to run")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    listed = [json.loads(line) for line in (HERE / "cases.jsonl").read_text().splitlines()]
    cases = [case for case in listed if case["archive"] == asked.archive and asked.only in case["name"]]
    site = site_of(asked.archive)
    began = time.time()
    make_models({case["model"] for case in cases}, site)
    print(f"models made in {time.time() - began:.0f} s", flush=True)
    run(cases, asked.jobs, asked.out, {asked.archive: site})
    print(f"done in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
