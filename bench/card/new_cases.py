"""Twelve configs of `vramwise new`, to be run on one large card under the memory of the cards they were written for:

    python new_cases.py FOLDER          # writes the configs, data.jsonl and cases.json
    python new_cases.py FOLDER --run    # on the card: starts each trainer and compares

`--run` needs the trainers installed. Each run may reserve as much as its target card has: the share goes to
`torch.cuda.set_per_process_memory_fraction` by way of a sitecustomize.py that this script writes beside the configs.
A case passes when the trainer ends with exit code 0 and reserved no more than was predicted, plus the margin.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]

CASES = (
    ("Qwen/Qwen2.5-0.5B", "rtx-3060", "axolotl", "full"),
    ("Qwen/Qwen2.5-0.5B", "rtx-3060", "trl", "full"),
    ("Qwen/Qwen2.5-0.5B", "rtx-3060", "llamafactory", "lora"),
    ("meta-llama/Llama-3.2-1B", "rtx-3060", "axolotl", "lora"),
    ("meta-llama/Llama-3.2-1B", "rtx-4090", "trl", "full"),
    ("Qwen/Qwen3-4B", "rtx-4090", "axolotl", "lora"),
    ("Qwen/Qwen3-4B", "rtx-4090", "trl", "lora"),
    ("Qwen/Qwen3-4B", "rtx-4090", "llamafactory", "qlora"),
    ("meta-llama/Llama-3.1-8B", "rtx-4090", "axolotl", "auto"),
    ("meta-llama/Llama-3.1-8B", "rtx-4090", "trl", "auto"),
    ("meta-llama/Llama-3.1-8B", "h100", "axolotl", "auto"),
    ("Qwen/Qwen3-14B", "a100-40gb", "trl", "auto"),
)
# Put into every process of a run: the limit, and at its end what was reserved.
LIMIT = """\
import atexit, os
try:
    import torch
    share = float(os.environ["VRAMWISE_LIMIT_BYTES"]) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    atexit.register(lambda: print("vramwise-reserved", torch.cuda.max_memory_reserved(), flush=True))
except Exception as error:
    print("vramwise-limit-failed", error, flush=True)
"""


def write(folder: Path) -> None:
    """The configs and what is predicted of them."""
    from new_table import data_file
    from vramwise.options import NewOptions, Options
    from vramwise.verbs.new import new

    folder.mkdir(parents=True, exist_ok=True)
    data_file(folder)
    (folder / "sitecustomize.py").write_text(LIMIT, encoding="utf-8")
    os.chdir(folder)
    found = []
    for number, (model, card, trainer, method) in enumerate(CASES):
        name = f"{number:02}-{trainer}.yml"
        ask = NewOptions(model=model, method=method, data="data.jsonl", path=name, epochs=1, online=False)
        made = new(ask, Options(gpu=card, trainer=trainer))
        Path(name).write_text(made.text, encoding="utf-8")
        for other, text in made.companions.items():
            Path(other).write_text(text, encoding="utf-8")
        needs = made.prediction.needs.highest_reserved_bytes
        case: dict[str, Any] = {"config": name, "card": card, "model": model, "method": made.method}
        case |= {"launch": made.launch, "reserved_bytes": needs, "limit_bytes": made.prediction.capacity_bytes}
        found.append(case)
        print(name, model, card, made.method, f"{needs / 2**30:.1f} GiB", flush=True)
    Path("cases.json").write_text(json.dumps(found, indent=2), encoding="utf-8")


def run(folder: Path) -> None:
    """Start each trainer under its card's memory; a line a case."""
    os.chdir(folder)
    for case in json.loads(Path("cases.json").read_text(encoding="utf-8")):
        environment = {**os.environ, "VRAMWISE_LIMIT_BYTES": str(case["limit_bytes"]), "PYTHONPATH": str(Path.cwd())}
        words = shlex.split(case["launch"])
        while re.fullmatch(r"\w+=\S+", words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        reserved = max((int(size) for size in re.findall(r"vramwise-reserved (\d+)", done.stdout)), default=0)
        Path(f"{case['config']}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        within = done.returncode == 0 and 0 < reserved <= case["limit_bytes"]
        off = reserved / case["reserved_bytes"] - 1 if reserved else float("nan")
        print(case["config"], "ok" if within else "FAILED", done.returncode, f"{off:+.2%} of what was predicted")


def main() -> None:
    """Write, or run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true")
    asked = parser.parse_args()
    (run if asked.run else write)(asked.folder)


if __name__ == "__main__":
    main()
