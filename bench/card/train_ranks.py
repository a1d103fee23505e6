"""`vramwise train` as two ranks that share one card: measured, out of memory, killed; and the losses afterwards.

    python train_ranks.py OUT_DIR [--seconds 300] [--only NAME] [--without-nccl] [--known fsdp2=6433503232]

The embedded engine, started by torchrun as for two cards; ranks exchange by NCCL (see `rank_start.py`), so losses are
true. `--without-nccl`: DDP by gloo, whose losses are true as well; under FSDP 2 and ZeRO 3 nothing is moved (torch's
fake backend): memory is a rank's, values are not. Each case is trained free, then under a limit below what it took,
where it must run out of memory on every or one rank, restart all with the same effective batch and end. DDP's is killed
instead (rank 1, SIGKILL) and resumed. `--known`: the bytes that a case allocates, where it was trained free before.
SITES as in `rank_runs.py`; REPO: a tree of vramwise where this one is a copy elsewhere. One JSON line a run in
OUT_DIR/train_ranks.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import axolotl_runs as runs
from rank_runs import environment

HERE = Path(__file__).resolve().parent
SOURCE = Path(os.environ.get("REPO", HERE.parent.parent)) / "src"
MIB = 1024**2
LONGEST_RUN_S = 110
FSDP = {
    "fsdp_version": 2,
    "fsdp_config": {"transformer_layer_cls_to_wrap": "Qwen2DecoderLayer", "offload_params": False},
}
ZERO = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": "auto"}
ZERO |= dict.fromkeys(("train_batch_size", "gradient_accumulation_steps", "gradient_clipping"), "auto")
COMMON = {
    "sequence_len": 512,
    "pad_to_sequence_len": True,
    "micro_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_steps": 4,
    "learning_rate": 1e-4,
    "lr_scheduler": "constant",
    "optimizer": "adamw_torch_fused",
    "bf16": True,
    "attn_implementation": "sdpa",
    "logging_steps": 1,
    "val_set_size": 0,
    "seed": 11,
}
LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "lora_target_linear": True}
UNSAVED = {"save_strategy": "no"}
SAVED = {"save_steps": 1, "save_total_limit": 2}
MODEL = "qwen25_8"
# a Qwen2.5-0.5B of eight layers and fewer words: ranks send all of it through a socket in every step
SHAPE = {"num_hidden_layers": 8, "vocab_size": 64000}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    # name: how ranks exchange where NCCL cannot, keys
    "fsdp2": ("fake", {**FSDP, **UNSAVED}),
    "zero3": ("fake", {"deepspeed": "ds.json", **UNSAVED}),
    "ddp": ("gloo", {**LORA, **SAVED}),
}


def make_model() -> None:
    """The one model of all cases, where the runs look for models."""
    runs.MODELS[MODEL] = {**runs.MODELS["qwen25_05b"], **SHAPE}
    if runs.MODELS[MODEL].get("layer_types"):
        runs.MODELS[MODEL]["layer_types"] = runs.MODELS[MODEL]["layer_types"][: SHAPE["num_hidden_layers"]]
    runs.ROOM_FOR_A_MODEL = 4 << 30
    runs.make([MODEL])


def write(folder: Path, name: str) -> Path:
    """The config of a case."""
    keys = CASES[name][1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ds.json").write_text(json.dumps(ZERO))
    keys = {**keys, **({"deepspeed": str(folder / "ds.json")} if "deepspeed" in keys else {})}
    data = [{"path": str(runs.WORK / "data.jsonl"), "type": "alpaca", "ds_type": "json"}]
    paths = {"base_model": str(runs.WORK / "models" / MODEL), "datasets": data, "output_dir": str(folder / "out")}
    (folder / "config.yml").write_text(json.dumps(COMMON | keys | paths))
    return folder / "config.yml"


def start(config: Path, cuda: str, log: Path, *words: str) -> subprocess.Popen[bytes]:
    """`vramwise train`, its ranks on one card."""
    env = environment("axolotl", "")
    env["PYTHONPATH"] = f"{HERE / 'one_card'}:{HERE}:{SOURCE}:{env['PYTHONPATH']}"
    env |= {"RANKS_CUDA": cuda, "PYTHONUNBUFFERED": "1"}
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        env.pop(variable, None)
    line = [sys.executable, "-m", "vramwise", "train", str(config), "--engine", "transformers", "--gpus", "2", *words]
    with log.open("ab") as file:
        return subprocess.Popen(line, env=env, stdout=file, stderr=file, start_new_session=True)


def ended(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Its exit code; everything of it is ended where it takes too long."""
    try:
        return process.wait(max(1, min(LONGEST_RUN_S, deadline - time.time())))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return -9


def outcome(name: str, what: str, folder: Path, code: int) -> dict[str, Any]:
    """What a run left: losses, attempts, and the report of all ranks."""
    sys.path.insert(0, str(SOURCE))
    from vramwise.render.train_report import render_train_report
    from vramwise.training.parent.measured import read_report

    out = folder / "out"
    row: dict[str, Any] = {"name": name, "what": what, "code": code}
    state = out / "trainer_state.json"
    if state.is_file():
        history = json.loads(state.read_text())["log_history"]
        row["losses"] = [entry["loss"] for entry in history if "loss" in entry]
    try:
        report = read_report(out)
        row["report"] = render_train_report(report)
        row["ranks"] = [[one.rank, one.peak.allocated_bytes, one.peak.reserved_bytes] for one in report.ranks]
        row["decisions"] = [dict(one) for one in report.decisions]
    except Exception as error:
        row["report"] = [str(error)]
    row["log"] = (folder / "log").read_text(errors="replace")[-6000:]
    return row


def kill_rank(number: int, folder: Path, deadline: float) -> bool:
    """SIGKILL to the worker with that rank, once the second checkpoint is there."""
    while not (folder / "out" / "checkpoint-2" / "trainer_state.json").exists():
        if time.time() > deadline:
            return False
        time.sleep(0.25)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            env = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"RANK={number}".encode() in env and str(folder).encode() in words:
            os.kill(int(process.name), signal.SIGKILL)
            return True
    return False


class Case:
    """All runs of a case, one after the other; each is written down as soon as it has ended."""

    def __init__(self, name: str, out: Path, deadline: float, cuda: str, known: int = 0) -> None:
        self.name = name
        self.known = known
        self.out = out
        self.deadline = deadline
        self.cuda = cuda

    def run(self) -> None:
        """Free, then under a limit or killed."""
        peaks = [[0, self.known]] if self.known else self._once("free", "free").get("ranks") or []
        if self.name == "ddp":
            self._once("killed", "rank 1 killed", kills=True)
            self._once("killed", "resumed", "--resume")
        elif peaks:
            limit = f"{int(0.85 * max(peak[1] for peak in peaks) / MIB)}MiB"
            self._once("limited", f"limit {limit}", "--memory-limit", limit)

    def _once(self, place: str, what: str, *words: str, kills: bool = False) -> dict[str, Any]:
        if time.time() > self.deadline - 20:
            return {}
        folder = runs.WORK / "train_ranks" / self.name / place
        config = write(folder, self.name)
        began = time.time()
        process = start(config, self.cuda, folder / "log", "--force", *words)
        if kills:
            what += f": {kill_rank(1, folder, min(self.deadline, began + LONGEST_RUN_S))}"
        code = ended(process, self.deadline)
        row = outcome(self.name, what, folder, code) | {"cuda": self.cuda, "seconds": round(time.time() - began, 1)}
        with (self.out / "train_ranks.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row["name"], row["what"], row["code"], row.get("losses"), row["seconds"], flush=True)
        return row


def main() -> None:
    """One case after the other: two processes are on the card at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--without-nccl", action="store_true")
    parser.add_argument("--known", action="append", default=[])
    arguments = parser.parse_args()
    known = {name: int(size) for name, _, size in (one.partition("=") for one in arguments.known)}
    deadline = time.time() + arguments.seconds
    runs.WORK.mkdir(exist_ok=True)
    runs.data()
    code = "import train_ranks; train_ranks.make_model()"
    subprocess.run([sys.executable, "-c", code], env=environment("axolotl", ""), cwd=HERE, check=True)
    for name, (otherwise, _) in CASES.items():
        if arguments.only in name:
            try:
                cuda = otherwise if arguments.without_nccl else "nccl"
                Case(name, arguments.out, deadline, cuda, known.get(name, 0)).run()
            except Exception as error:  # the other cases go on
                print(name, type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main()
