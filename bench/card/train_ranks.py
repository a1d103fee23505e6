"""`vramwise train` as two ranks that share one card: measured, out of memory, killed; and the losses afterwards.

    python train_ranks.py OUT_DIR [--seconds 300] [--only NAME]

The embedded engine, started by torchrun as for two cards. Under DDP gloo moves what ranks exchange through the host, so
losses are true; under FSDP 2 and ZeRO 3 nothing is moved (torch's fake backend): memory is a rank's, values are not.
Each case is trained free, then under a limit below what it took, where it must run out of memory on every or one rank,
restart all with the same effective batch and end. DDP's is also killed (rank 1, SIGKILL) and resumed. SITES as in
`rank_runs.py`. One JSON line a run in OUT_DIR/train_ranks.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import axolotl_runs as runs
from rank_runs import environment

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
MIB = 1024**2
LONGEST_RUN_S = 110
FSDP = {
    "fsdp_version": 2,
    "fsdp_config": {"transformer_layer_cls_to_wrap": "Qwen2DecoderLayer", "offload_params": False},
}
ZERO = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
COMMON = {
    "sequence_len": 1024,
    "pad_to_sequence_len": True,
    "micro_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_steps": 6,
    "save_steps": 1,
    "save_total_limit": 2,
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
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    # name: how ranks exchange, model, keys
    "ddp": ("gloo", "qwen25_05b", LORA),
    "fsdp2": ("fake", "qwen25_05b", FSDP),
    "zero3": ("fake", "qwen25_05b", {"deepspeed": "ds.json"}),
}


def write(folder: Path, name: str) -> Path:
    """The config of a case."""
    _, model, keys = CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ds.json").write_text(json.dumps(ZERO))
    keys = {**keys, **({"deepspeed": str(folder / "ds.json")} if "deepspeed" in keys else {})}
    data = [{"path": str(runs.WORK / "data.jsonl"), "type": "alpaca", "ds_type": "json"}]
    paths = {"base_model": str(runs.WORK / "models" / model), "datasets": data, "output_dir": str(folder / "out")}
    (folder / "config.yml").write_text(json.dumps(COMMON | keys | paths))
    return folder / "config.yml"


def start(config: Path, name: str, log: Path, *words: str) -> subprocess.Popen[bytes]:
    """`vramwise train`, its ranks on one card."""
    env = environment("axolotl", "")
    env["PYTHONPATH"] = f"{HERE / 'one_card'}:{HERE}:{SOURCE}:{env['PYTHONPATH']}"
    env |= {"RANKS_CUDA": CASES[name][0], "PYTHONUNBUFFERED": "1"}
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
    from vramwise.render.train_report_text import render_train_report
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
    while not (folder / "out" / "checkpoint-2").exists():
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

    def __init__(self, name: str, out: Path, deadline: float) -> None:
        self.name = name
        self.out = out
        self.deadline = deadline

    def run(self) -> None:
        """Free, under a limit, and killed."""
        peaks = self._once("free", "free").get("ranks") or []
        if peaks:
            limit = f"{int(0.85 * max(peak[1] for peak in peaks) / MIB)}MiB"
            self._once("limited", f"limit {limit}", "--memory-limit", limit)
        if self.name == "ddp":
            self._once("killed", "rank 1 killed", kills=True)
            self._once("killed", "resumed", "--resume")

    def _once(self, place: str, what: str, *words: str, kills: bool = False) -> dict[str, Any]:
        if time.time() > self.deadline - 20:
            return {}
        folder = runs.WORK / "train_ranks" / self.name / place
        config = write(folder, self.name)
        process = start(config, self.name, folder / "log", "--force", *words)
        if kills:
            what += f": {kill_rank(1, folder, self.deadline)}"
        row = outcome(self.name, what, folder, ended(process, self.deadline))
        with (self.out / "train_ranks.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row["name"], row["what"], row["code"], row.get("losses"), flush=True)
        return row


def main() -> None:
    """All cases side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=300)
    arguments = parser.parse_args()
    deadline = time.time() + arguments.seconds
    runs.WORK.mkdir(exist_ok=True)
    runs.data()
    wanted = [name for name in CASES if arguments.only in name]
    code = f"import axolotl_runs; axolotl_runs.make({sorted({CASES[name][1] for name in wanted})!r})"
    subprocess.run([sys.executable, "-c", code], env=environment("axolotl", ""), cwd=HERE, check=True)
    with ThreadPoolExecutor(len(wanted)) as pool:
        for _ in pool.map(lambda name: Case(name, arguments.out, deadline).run(), wanted):
            pass


if __name__ == "__main__":
    main()
