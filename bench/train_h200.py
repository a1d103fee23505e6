"""`vramwise train` on a GPU: predicted against measured memory for every phase, and out-of-memories that recover.

Makes everything itself (model folders without weights, a tokenizer, samples of known lengths), writes Axolotl configs
and runs `vramwise train --random-weights` on them, several at a time where the card has room for it:

    python bench/train_h200.py OUT              all cases on this GPU; table, OUT/train.json
    python bench/train_h200.py OUT --rehearse   the same with tiny models on a CPU: nothing is measured

Needs torch, transformers, accelerate and peft, and bitsandbytes for QLoRA. The prediction that is compared is the one
the guard had: made by vramwise for the lengths of the very rows it trains on.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "measured"))

from train_cases import EXPANDABLE, VARIABLE, Case, cases, make_data, make_models, rehearsed, write_config
from vramwise.training.parent.measured import compare, read_report

ROOT = Path(__file__).parent.parent
GIB = 1024**3


@dataclass(slots=True)
class Room:
    """The card's memory, lent to runs."""

    free_gib: float
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, gib: float) -> None:
        """Wait until there is room."""
        with self.changed:
            self.changed.wait_for(lambda: self.free_gib >= gib)
            self.free_gib -= gib

    def give(self, gib: float) -> None:
        """Give it back."""
        with self.changed:
            self.free_gib += gib
            self.changed.notify_all()


def vramwise(*words: str, timeout: float = 150) -> tuple[int, str]:
    """One command; its exit code and everything it said."""
    command = [sys.executable, "-m", "vramwise", *words]
    try:
        done = subprocess.run(
            command,
            env=_env(),
            text=True,
            timeout=timeout,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired as error:
        return 124, str(error.output)
    return done.returncode, done.stdout


def _env() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.endswith("ALLOC_CONF")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return env


def run_case(case: Case, folder: Path, room: Room) -> dict[str, Any]:
    """Train; what was said, measured and decided."""
    name = "".join(letter if letter.isalnum() else "-" for letter in case.name)
    config = write_config(folder, name, case.config)
    words = ["train", str(config), "--random-weights", "--alloc-conf", case.allocator, *case.options]
    if case.limit_gib is not None:
        words += ["--memory-limit", f"{case.limit_gib * 1024:.0f}MiB"]
    refused = None
    room.take(case.room_gib)
    try:
        started = time.monotonic()
        code, said = vramwise(*words)
        if code == 1 and "--force" in said:  # predicted not to fit, and so not started: that is a result too
            refused = said
            code, said = vramwise(*words, "--force")
        took = time.monotonic() - started
    finally:
        room.give(case.room_gib)
    output = folder / "runs" / name
    result: dict[str, Any] = {
        "name": case.name, "allocator": case.allocator, "limit_gib": case.limit_gib, "config": config.read_text(),
        "command": " ".join(words), "exit_code": code, "seconds": round(took, 1), "refused": refused, "said": said,
        "attempts": [],
    }  # fmt: skip
    if (output / "memory.jsonl").is_file():
        result |= {"out_of_memory": records(output), "folder": str(output)}
        if '"kind":"start"' in (output / "memory.jsonl").read_text():
            result |= measured(output)
    result["as_expected"] = as_expected(case, result)
    return result


def measured(output: Path) -> dict[str, Any]:
    """The report of a run's folder as plain containers, and what `replay` makes of its snapshots."""
    report = read_report(output)
    attempts = []
    for attempt in report.attempts:
        rows = [
            {
                "phase": row.phase,
                "predicted": None if row.predicted is None else vars_of(row.predicted),
                "measured": None if row.measured is None else vars_of(row.measured),
            }
            for row in compare(attempt)
        ]
        kept = ("micro_batch_size", "gradient_accumulation_steps", "eval_batch_size", "device")
        warnings = [f"{one['rule']}: {one['message']}" for one in attempt.warnings]
        attempts.append(
            {key: attempt.start[key] for key in kept} | {"ended": attempt.ended, "phases": rows, "warnings": warnings}
        )
    replays = {path.name: vramwise("replay", str(path)) for path in sorted(output.glob("oom-*.pickle"))}
    return {"attempts": attempts, "replays": replays}


def records(output: Path) -> list[dict[str, Any]]:
    """What was written down at each out-of-memory."""
    return [json.loads(path.read_text()) for path in sorted(output.glob("oom-*.json"))]


def vars_of(peak: Any) -> dict[str, int]:
    """The two figures."""
    return {"allocated_bytes": peak.allocated_bytes, "reserved_bytes": peak.reserved_bytes}


def as_expected(case: Case, result: dict[str, Any]) -> bool:
    """It trained to its end, and ran out of memory on the way where it should have."""
    if result["exit_code"] != case.exit_code:
        return False
    if case.exit_code:  # it never got to train
        return [one["phase"] for one in result.get("out_of_memory", ())] == ["load"]
    if not result["attempts"]:
        return False
    last = result["attempts"][-1]
    right = case.micro_after is None or last["micro_batch_size"] == case.micro_after
    return right and (len(result["attempts"]) > 1) == case.recovers


def killed_and_resumed(folder: Path, room: Room) -> dict[str, Any]:
    """Runs out of memory, goes on with half the micro-batch, is killed there, and is resumed: with which batches?"""
    config = VARIABLE | {"pad_to_sequence_len": True, "save_strategy": None, "save_steps": 1, "max_steps": 8}
    path = write_config(folder, "killed", config)
    output = folder / "runs" / "killed"
    words = ["train", str(path), "--random-weights", "--alloc-conf", EXPANDABLE, "--memory-limit", "24GiB", "--force"]
    room.take(27)
    try:
        killed = subprocess.Popen(
            [sys.executable, "-m", "vramwise", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_env()
        )
        end = time.monotonic() + 90
        while not (output / "checkpoint-2" / "vramwise-complete.json").is_file() and time.monotonic() < end:
            time.sleep(0.05)
        killed.kill()
        killed.wait()
        code, said = vramwise(*words, "--resume")
        while code == 2 and "in use by another run" in said and time.monotonic() < end:  # the worker saves and ends
            time.sleep(0.5)
            code, said = vramwise(*words, "--resume")
    finally:
        room.give(27)
    attempts = [
        {"micro_batch_size": attempt.start["micro_batch_size"], "first_step": attempt.start["step"] + 1}
        for attempt in read_report(output).attempts
    ]
    right = code == 0 and [one["micro_batch_size"] for one in attempts] == [4, 2, 2] and attempts[2]["first_step"] > 2
    return {"exit_code": code, "said": said, "attempts": attempts, "as_expected": right}


_PLAIN = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
config = LlamaConfig(vocab_size=1024, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 1024, (16, 32))]
arguments = TrainingArguments(output_dir=sys.argv[1], max_steps=2, fp16=True, report_to=[], save_strategy="no")
Trainer(model=LlamaForCausalLM(config).half(), args=arguments, train_dataset=rows).train()
"""


def fp16_full_finetune(folder: Path, *, rehearse: bool) -> dict[str, Any]:
    """Plain transformers fails at the first step; `vramwise train` says so before it."""
    long = {"model": "1b", "train": "full2048", "sequence_len": 2048, "micro_batch_size": 1, "bf16": False}
    config = write_config(folder, "fp16", long | {"fp16": True})
    code, said = vramwise("train", str(config), "--random-weights", *(("--gpu", "H200") if rehearse else ()))
    plain = subprocess.run(
        [sys.executable, "-c", _PLAIN, str(folder / "plain")], text=True, capture_output=True, check=False, timeout=120
    )
    last = plain.stderr.strip().splitlines()[-1:] or [""]
    return {"plain_exit_code": plain.returncode, "plain_error": last[0], "vramwise_exit_code": code, "vramwise": said}


def table(results: list[dict[str, Any]]) -> str:
    """Predicted against measured, in Markdown."""
    lines = [
        "| run | phase | allocated GiB: predicted / measured | reserved GiB: predicted / measured |",
        "|---|---|---|---|",
    ]
    for result in results:
        for number, attempt in enumerate(result["attempts"], 1):
            name = result["name"] + (f" (attempt {number})" if len(result["attempts"]) > 1 else "")
            for row in attempt["phases"]:
                cells = [_cell(row, f"{kind}_bytes", ended=attempt["ended"]) for kind in ("allocated", "reserved")]
                lines.append(f"| {name} | {row['phase']} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any], key: str, *, ended: bool) -> str:
    """An error only for an attempt that came to its end: one that did not never reached its peak."""
    predicted, seen = row["predicted"], row["measured"]
    words = [f"{one[key] / GIB:.2f}" if one else "–" for one in (predicted, seen)]
    error = f" ({100 * (predicted[key] / seen[key] - 1):+.1f} %)" if ended and predicted and seen and seen[key] else ""
    return " / ".join(words) + error


def versions() -> dict[str, str]:
    """Of what was measured."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "transformers", "accelerate", "peft", "bitsandbytes"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def keep_snapshots(results: list[dict[str, Any]], out: Path) -> None:
    """The allocator's snapshots, small enough to take along."""
    for result in results:
        for path in sorted(Path(result.get("folder", out / "none")).glob("oom-1.pickle")):
            (out / f"{path.parent.name}.pickle.gz").write_bytes(gzip.compress(path.read_bytes(), 6))


def main() -> int:
    """Run everything; fail where a run did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name this pattern finds")
    parser.add_argument("--room", type=float, default=136, help="GiB of the card that runs may fill together")
    arguments = parser.parse_args()
    folder = arguments.out / "work" if arguments.rehearse else Path(os.environ.get("TMPDIR", "/var/tmp")) / "train_h200"
    shutil.rmtree(folder, ignore_errors=True)
    make_models(folder, tiny=arguments.rehearse)
    make_data(folder, divide=16 if arguments.rehearse else 1)
    chosen = [
        rehearsed(case) if arguments.rehearse else case for case in cases() if re.search(arguments.only, case.name)
    ]
    room, started = Room(arguments.room), time.monotonic()
    with ThreadPoolExecutor(len(chosen) + 2) as pool:
        killed = None if arguments.rehearse else pool.submit(killed_and_resumed, folder, room)
        fp16 = pool.submit(fp16_full_finetune, folder, rehearse=arguments.rehearse)
        jobs = [pool.submit(run_case, case, folder, room) for case in chosen]
        results = []
        for job in jobs:
            results.append(job.result())
            one = results[-1]
            print(f"{one['name']}: exit {one['exit_code']}, {one['seconds']} s, as expected: {one['as_expected']}")
            if not one["as_expected"]:
                print(one["said"][-3000:], flush=True)
    written = {
        "versions": versions(), "fp16": fp16.result(), "killed": None if killed is None else killed.result(),
        "runs": results,
    }  # fmt: skip
    (arguments.out / "train.json").write_text(json.dumps(written, indent=1).replace(str(folder), "WORK"))
    keep_snapshots(results, arguments.out)
    print(table(results))
    print(json.dumps({"fp16": written["fp16"], "killed": written["killed"]}, indent=1))
    print(f"{time.monotonic() - started:.0f} s; {written['versions']}")
    right = [one["as_expected"] for one in results] + ([] if killed is None else [killed.result()["as_expected"]])
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
