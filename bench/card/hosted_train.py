"""`vramwise train` with TRL and LLaMA-Factory on a card: guard against prediction, and real out-of-memories.

    python hosted_train.py OUT_DIR --sites FOLDER [--seconds 240] [--jobs 4] [--only NAME]
    python hosted_train.py OUT_DIR --rehearse trl=PYTHON llamafactory=PYTHON     tiny, on the CPU: nothing is measured

FOLDER holds one site-packages folder a trainer (`trl`; `llamafactory` or `lf`); torch is this Python's own. Each case
is trained twice: free, to its end, and under a limit 10 % below the tensors that were predicted, where it must run out
of memory, take a smaller micro-batch against more accumulation (or a smaller evaluation batch) and reach the same step
with the same effective batch. Every row of the data is longer than a batch is wide, so that widths are those of the
prediction. One JSON line a run in OUT_DIR/hosted.jsonl; the ends of what they said in OUT_DIR/logs.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
WORK = Path(os.environ.get("HOSTED_WORK", "/tmp/hosted-train"))
MIB = 1024**2
LONGEST_RUN_S = 170
SHAPES = json.loads((HERE / "models.json").read_text())
STEPS = 4
_COMMON = {
    "max_steps": STEPS,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1e-5,
    "lr_scheduler_type": "constant",
    "save_strategy": "steps",
    "save_steps": 1,
    "logging_steps": 1,
    "report_to": "none",
    "seed": 11,
    "bf16": True,
    "optim": "adamw_torch_fused",
}
_LORA = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear", "dtype": "bfloat16"}
_EVALUATED = {"per_device_train_batch_size": 1, "per_device_eval_batch_size": 16, "test_split_size": 0.25}


@dataclass(frozen=True)
class Case:
    """One config: of which trainer, for which command, with which keys of its own."""

    trainer: str
    kind: str
    model: str
    keys: dict[str, Any]


_FACTORY = {"finetuning_type": "lora", "lora_rank": 16, "cutoff_len": 1024, "per_device_train_batch_size": 8}
CASES = {
    "trl_sft": Case("trl", "sft", "llama1b", {**_LORA, "max_length": 1024, "per_device_train_batch_size": 8}),
    "trl_sft_eval": Case(
        "trl",
        "sft",
        "qwen25_05b",
        {**_LORA, "max_length": 1024, **_EVALUATED, "eval_strategy": "steps", "eval_steps": 2},
    ),
    "trl_dpo": Case("trl", "dpo", "qwen25_05b", {**_LORA, "max_length": 1024, "per_device_train_batch_size": 4}),
    "llamafactory_sft": Case(
        "llamafactory",
        "sft",
        "qwen25_05b",
        _FACTORY,
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a trainer lives: the Python that runs it and what its path needs."""

    python: str
    site: str | None

    def environment(self, name: str, commands: Path) -> dict[str, str]:
        """What a run sees; `name` marks its processes."""
        kept = {key: value for key, value in os.environ.items() if not key.endswith("ALLOC_CONF")}
        path = [part for part in (self.site, str(SOURCE), os.environ.get("PYTHONPATH")) if part]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(path),
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "HOSTED_RUN": name,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(WORK / "hf"),
            "WANDB_DISABLED": "true",
            "OMP_NUM_THREADS": "2",
        }


def write_data() -> None:
    """Rows of more words than any batch is wide: one file a method."""
    rng = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(4000)]
    (WORK / "words.txt").write_text(" ".join(words))

    def text(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    def write(name: str, rows: list[dict[str, str]]) -> None:
        (WORK / name).mkdir(exist_ok=True)
        (WORK / name / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("sft", [{"text": text(1200)} for _ in range(96)])
    write("dpo", [{"prompt": text(40), "chosen": text(1200), "rejected": text(1200)} for _ in range(64)])
    write("instructions", [{"instruction": text(12), "input": "", "output": text(1200)} for _ in range(96)])
    (WORK / "dataset_info.json").write_text(json.dumps({"made": {"file_name": "instructions/train.jsonl"}}))


def config_of(case: Case, name: str) -> dict[str, Any]:
    """The whole config of a run."""
    places = {"model_name_or_path": str(WORK / "models" / case.model), "output_dir": str(WORK / "out" / name)}
    if case.trainer == "trl":
        data = [{"path": "json", "data_files": str(WORK / case.kind / "train.jsonl")}]
        own: dict[str, Any] = {"datasets": data}
    else:
        own = {"stage": case.kind, "do_train": True, "dataset": "made", "dataset_dir": str(WORK), "template": "default"}
        own |= {"preprocessing_num_workers": 2, "overwrite_cache": True}
    return {**places, **_COMMON, **own, **case.keys}


class Runs:
    """All runs, one line each as they end."""

    def __init__(self, out: Path, places: dict[str, Place], deadline: float, *, rehearsed: bool) -> None:
        self.out, self.places, self.deadline, self.rehearsed = out, places, deadline, rehearsed
        self._writing = threading.Lock()

    def both(self, name: str) -> None:
        """A case: free, then limited by what was foretold."""
        try:
            free = self.run(name, None)
            foretold = free.get("predicted_allocated_mib")
            if foretold:
                self.run(name, int(foretold * 0.9))
        except Exception as error:  # one case must not take the others with it
            self._write({"name": name, "failed": f"{type(error).__name__}: {error}"}, "")

    def run(self, name: str, limit_mib: int | None) -> dict[str, Any]:
        """One run of `vramwise train`; what it left."""
        case = CASES[name]
        label = f"{name}-limited" if limit_mib else name
        config = config_of(case, label)
        if self.rehearsed:
            config |= {"bf16": False, "use_cpu": True}
        file = WORK / f"{label}.yml"
        file.write_text(json.dumps(config))
        words = ["train", str(file), "--engine", case.trainer, "--fresh"]
        words += ["--trainer", f"trl:{case.kind}"] if case.trainer == "trl" else []
        words += ["--memory-limit", f"{limit_mib}MiB", "--force"] if limit_mib else []
        words += ["--memory-limit", "1000GiB"] if self.rehearsed and not limit_mib else []
        began = time.time()
        code, said = self._vramwise(case, label, words)
        row = {
            "name": name,
            "trainer": case.trainer,
            "kind": case.kind,
            "limit_mib": limit_mib,
            "exit_code": code,
            "seconds": round(time.time() - began, 1),
            **self._left(case, label),
        }
        if limit_mib:
            row |= judged(row, config)
        self._write(row, said)
        shutil.rmtree(WORK / "out" / label, ignore_errors=True)
        return row

    def _vramwise(self, case: Case, label: str, words: list[str], seconds: float = LONGEST_RUN_S) -> tuple[int, str]:
        place = self.places[case.trainer]
        log = WORK / f"{label}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                [place.python, "-m", "vramwise", *words],
                env=place.environment(label, WORK / "bin" / case.trainer),
                cwd=WORK,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                code = process.wait(max(1.0, min(seconds, self.deadline - time.time())))
            except subprocess.TimeoutExpired:
                end_all_of(label)
                process.kill()
                code = 124
        return code, log.read_text(errors="replace")

    def _left(self, case: Case, label: str) -> dict[str, Any]:
        """What the guard wrote down, and whether `vramwise report` reads it."""
        folder = WORK / "out" / label
        if not (folder / "memory.jsonl").exists():
            return {"attempts": []}
        code, _ = self._vramwise(case, f"{label}-report", ["report", str(folder)], 30)
        return {"report_exit_code": code, **seen_in(folder)}

    def _write(self, row: dict[str, Any], said: str) -> None:
        with self._writing:
            with (self.out / "hosted.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            with (self.out / "logs.txt").open("a") as file:
                file.write(f"=== {row['name']} limit {row.get('limit_mib')}\n{_ends(said)}\n")
            shown = {key: row[key] for key in ("name", "limit_mib", "exit_code", "seconds", "recovered") if key in row}
            shown["reserved"] = [row.get("predicted_reserved_mib"), row.get("measured_reserved_mib")]
            print(json.dumps(shown), flush=True)


def seen_in(folder: Path) -> dict[str, Any]:
    """The report of a run's folder in few figures."""
    from vramwise.training.parent.measured import compare, read_report

    report = read_report(folder)
    phases = {
        one.phase: {
            which: [_mib(one.predicted and getattr(one.predicted, which)), _mib(getattr(one.measured, which, None))]
            for which in ("allocated_bytes", "reserved_bytes")
        }
        for one in compare(report.last)
    }
    run = phases.get("run", {}).get("reserved_bytes", [None, None])
    tensors = phases.get("run", {}).get("allocated_bytes", [None, None])
    attempts = [
        {
            **{key: one.start.get(key) for key in ("step", *_BATCHES)},
            "ended": one.ended,
            "last_step": max((sample.step for sample in one.samples), default=None),
            "widths": sorted({sample.width for sample in one.samples if sample.width}),
        }
        for one in report.attempts
    ]
    kept = ("phase", "step", "requested_bytes", "allocated_bytes", "next", "exit_code")
    return {
        "device": report.device,
        "predicted_reserved_mib": run[0],
        "measured_reserved_mib": run[1],
        "predicted_allocated_mib": tensors[0],
        "measured_allocated_mib": tensors[1],
        "off_percent": None if not run[0] or not run[1] else round(100 * (run[0] / run[1] - 1), 2),
        "phases_mib": phases,
        "attempts": attempts,
        "out_of_memories": [{key: one.get(key) for key in kept} for one in report.out_of_memories],
        "warnings": [str(one.get("message"))[:200] for attempt in report.attempts for one in attempt.warnings],
    }


_BATCHES = ("micro_batch_size", "gradient_accumulation_steps", "eval_batch_size")


def judged(row: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Whether the limit was met, and whether the run came to its end with the batch it had."""
    attempts = row["attempts"]
    batches = [one["micro_batch_size"] * one["gradient_accumulation_steps"] for one in attempts]
    asked = config["per_device_train_batch_size"] * config["gradient_accumulation_steps"]
    at_end = bool(attempts) and attempts[-1]["ended"] and row["exit_code"] == 0
    met = len(attempts) > 1
    same = all(batch == asked for batch in batches)
    return {"ran_out": met, "same_batch": same, "recovered": bool(met and same and at_end)}


def end_all_of(label: str) -> None:
    """Kill what a run started: its processes carry its name in their environment."""
    mark = f"HOSTED_RUN={label}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:  # gone, or not ours
            continue


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / MIB, 1)


def _ends(said: str) -> str:
    return said if len(said) < 7000 else f"{said[:3500]}\n…\n{said[-3500:]}"


def commands(places: dict[str, Place]) -> None:
    """The trainers' commands, of which only the first line is read: the Python that has the trainer."""
    for trainer, name in (("trl", "trl"), ("llamafactory", "llamafactory-cli")):
        folder = WORK / "bin" / trainer
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!{places[trainer].python}\n")
        (folder / name).chmod(0o755)


def make(place: Place, names: list[str], *, rehearsed: bool) -> None:
    """The models, by a Python that has transformers."""
    tiny = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    tiny |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400}
    shapes = {name: {**SHAPES[name], **(tiny if rehearsed else {})} for name in names}
    code = "import json, sys; from pathlib import Path; from random_models import make_models; "
    code += "make_models(Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]).read_text(), sys.argv[4])"
    env = place.environment("models", WORK / "bin" / "trl")
    env["PYTHONPATH"] += os.pathsep + str(HERE)
    words = [str(WORK / "models"), json.dumps(shapes), str(WORK / "words.txt"), "cpu" if rehearsed else "cuda"]
    subprocess.run([place.python, "-c", code, *words], env=env, check=True, timeout=120)


def places_of(arguments: argparse.Namespace) -> dict[str, Place]:
    """Where each trainer lives."""
    if arguments.rehearse:
        return {name: Place(python, None) for name, _, python in (one.partition("=") for one in arguments.rehearse)}
    sites = {}
    for trainer, names in (("trl", ("trl",)), ("llamafactory", ("llamafactory", "lf"))):
        found = [arguments.sites / name for name in names if (arguments.sites / name).is_dir()]
        if not found:
            sys.exit(f"{arguments.sites} holds no folder {' or '.join(names)}")
        sites[trainer] = Place(sys.executable, str(found[0].resolve()))
    return sites


def main() -> None:
    """Run the cases side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sites", type=Path, default=Path(os.environ.get("SITES", "sites")))
    parser.add_argument("--rehearse", nargs=2, metavar="TRAINER=PYTHON")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    began = time.time()
    names = [name for name in CASES if arguments.only in name]
    arguments.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    places, rehearsed = places_of(arguments), bool(arguments.rehearse)
    sys.path[:0] = [str(SOURCE), *([places["trl"].site] if places["trl"].site else [])]
    write_data()
    commands(places)
    make(places["trl"], sorted({CASES[name].model for name in names}), rehearsed=rehearsed)
    print(f"set up in {time.time() - began:.0f} s", flush=True)
    runs = Runs(arguments.out, places, began + arguments.seconds, rehearsed=rehearsed)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(runs.both, names))
    print(f"done in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
