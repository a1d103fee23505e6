"""Runs of the real Axolotl (TRL, LLaMA-Factory) on a card, some side by side, and what they took: one JSON line each.

    python axolotl_runs.py OUT_DIR --cases cases.json [--jobs 5] [--trace] [--seconds 560]

Each case is `name: {"model": ..., "axolotl": "0.19.0", "config": {...}, "alloc": "..."}`; models are random weights of
real shapes (`models.json`), data is made up. Environment: SITES names a folder with site-packages folders; a case's
`site` lists those it uses, joined by `:` (default: its version, or its trainer's name). SHIM: a folder with stand-ins
for what is not there (flash attention and cut cross entropy need metadata). A server per site and allocator setting
imports everything once, when its first case is near, and ends after its last. A case with a `trainer`: see
`trainer_configs.py`. Cases start in their order, as far as their model, server and memory (`foretold`) are there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import trainer_configs
from random_models import make_models

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("AXOLOTL_WORK", "/tmp/axolotl-on-card"))
SITES = Path(os.environ.get("SITES", WORK / "sites"))
SHIM = [os.environ["SHIM"]] if os.environ.get("SHIM") else []
MODELS = json.loads((HERE / "models.json").read_text())
LONGEST_RUN_S, LAST_START_S = 200, 30
ROOM_BESIDE_MODELS = 6 << 30
ASSUMED_MIB = 20_000  # of a case without a prediction


def data() -> None:
    """Made-up data sets: one a method."""
    rng = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(4000)]

    def text(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    def write(name: str, rows: list[dict[str, object]]) -> None:
        (WORK / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    lengths = [max(20, min(1500, int(rng.lognormvariate(5.2, 0.9)))) for _ in range(600)]
    write("data.jsonl", [{"instruction": text(12), "input": "", "output": text(count)} for count in lengths])
    pairs = [{"prompt": text(60), "chosen": text(300), "rejected": text(rng.randint(150, 400))} for _ in range(200)]
    write("dpo.jsonl", [{"system": "", **pair} for pair in pairs])
    write("kto.jsonl", [{"prompt": text(60), "completion": text(300), "label": bool(i % 2)} for i in range(200)])
    chats = [
        {side: [_turn("user", pair["prompt"]), _turn("assistant", pair[side])] for side in ("chosen", "rejected")}
        for pair in pairs
    ]
    write("orpo.jsonl", chats)
    write("reward.jsonl", [{"system": "be good", "input": p["prompt"], **_sides(p)} for p in pairs])
    write("grpo.jsonl", [{"prompt": text(120)} for _ in range(200)])
    rows = [{"prompt": text(12), "completion": text(count)} for count in lengths]
    write("sft.jsonl", rows)
    write("pt.jsonl", [{"text": text(count)} for count in lengths])
    write("full.jsonl", [{"text": text(1300)} for _ in range(120)])  # longer than any batch is wide
    (WORK / "dataset_info.json").write_text(json.dumps(trainer_configs.DATASET_INFO))
    (WORK / "words.txt").write_text(" ".join(words))


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _sides(pair: dict[str, str]) -> dict[str, str]:
    return {side: pair[side] for side in ("chosen", "rejected")}


def make(names: list[str]) -> None:
    """Model folders with random weights; one that does not fit on the disk yet waits, and others go before it."""
    left = list(names)
    while left:
        name = next((name for name in left if _fits_on_disk(name)), None)
        if name is None:
            time.sleep(1)
            continue
        left.remove(name)
        try:
            make_models(WORK / "models", {name: MODELS[name]}, (WORK / "words.txt").read_text())
        except Exception:  # others can still be made
            traceback.print_exc()
            (WORK / "models" / f"{name}.failed").touch()


def _fits_on_disk(name: str) -> bool:
    """Roughly: embeddings, head and dense blocks, two bytes each; experts of each block, too."""
    shape = MODELS[name]
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    wide = shape.get("intermediate_size", 4 * hidden)
    experts = shape.get("num_experts", shape.get("n_routed_experts", 0))
    wide += experts * shape.get("moe_intermediate_size", wide)
    weights = 2 * shape.get("vocab_size", 160_000) * hidden + layers * hidden * (4 * hidden + 3 * wide)
    return shutil.disk_usage(WORK).free > 2 * weights + ROOM_BESIDE_MODELS


def config_of(name: str, case: dict[str, object]) -> dict[str, object]:
    """The whole config of a case: what is common to all, then its own keys."""
    if case.get("trainer"):
        return trainer_configs.config_of(WORK, name, case)
    config = {
        "base_model": str(WORK / "models" / str(case["model"])),
        "datasets": [{"path": str(WORK / "data.jsonl"), "type": "alpaca", "ds_type": "json"}],
        "sequence_len": 2048,
        "gradient_accumulation_steps": 1,
        "max_steps": 5,
        "num_epochs": 1,
        "learning_rate": 1e-5,
        "optimizer": "adamw_torch_fused",
        "lr_scheduler": "constant",
        "bf16": True,
        "tf32": False,
        "val_set_size": 0,
        "attn_implementation": "sdpa",
        "save_strategy": "no",
        "logging_steps": 1,
        "dataset_prepared_path": str(WORK / "prepared" / name),
        "output_dir": str(WORK / "out" / name),
        "seed": 11,
        **case["config"],  # type: ignore[dict-item]
    }
    kind = "reward" if config.get("reward_model") else str(config.get("rl"))
    fields = {"dpo": ("prompt", "chosen", "rejected"), "kto": ("prompt", "completion")}
    fields |= {"simpo": fields["dpo"], "ipo": fields["dpo"]}
    if kind in fields:
        names = {f"field_{field}": field for field in fields[kind]}
        formats = {f"{field}_format": "{" + field + "}" for field in fields[kind]}
        label = {"field_label": "label"} if kind == "kto" else {}
        config["datasets"] = [_set("kto.jsonl" if kind == "kto" else "dpo.jsonl", {**names, **formats, **label})]
    others = {"orpo": "chat_template.argilla", "reward": "bradley_terry.chat_template"}
    others["grpo"] = "axolotl_rewards.transform"
    if kind in others:
        config["datasets"] = [_set(f"{kind}.jsonl", others[kind])]
        if kind != "grpo":
            config["chat_template"] = "chatml"
    return config


def _set(file: str, kind: object) -> dict[str, object]:
    return {"path": str(WORK / file), "type": kind, "ds_type": "json", "split": "train"}


def environment(version: str, alloc: str, trainer: str = "axolotl") -> dict[str, str]:
    """What a run of this version sees."""
    return {
        **os.environ,
        "PYTHONPATH": ":".join([*[str(SITES / part) for part in version.split(":")], *SHIM, str(HERE)]),
        "TRAINER": trainer,
        "AXOLOTL_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_DISABLED": "true",
        "PYTORCH_CUDA_ALLOC_CONF": alloc,
        "PYTORCH_ALLOC_CONF": alloc,
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TRITON_CACHE_DIR": str(WORK / "triton"),
        "OMP_NUM_THREADS": "2",
        "AXOLOTL_DATASET_NUM_PROC": "2",
    }


class Server:
    """A process that has imported everything and forks a child for each run."""

    def __init__(self, version: str, alloc: str, trainer: str) -> None:
        self.ready_file = WORK / f"ready-{time.time_ns()}"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py")],
            env={**environment(version, alloc, trainer), "READY": str(self.ready_file)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> bool:
        """Whether a run would start at once."""
        return self.ready_file.exists() and self.process.poll() is None

    def start(self, folder: Path) -> int:
        """Start a run in a folder; its process id."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


class Servers:
    """One for each kind of case, in the order in which cases need them; at most so many import at once."""

    def __init__(self, importing: int) -> None:
        self.importing = importing
        self.running: dict[tuple[str, str, str], Server] = {}

    def keep(self, needed: list[tuple[str, str, str]]) -> None:
        """End those that no case needs any more, start those that are needed next."""
        for key in [key for key in self.running if key not in needed]:
            self.running.pop(key).process.kill()
        for key in dict.fromkeys(needed):
            busy = sum(not server.ready() for server in self.running.values())
            if key not in self.running and busy < self.importing:
                self.running[key] = Server(*key)

    def ready(self, key: tuple[str, str, str]) -> bool:
        """Whether that one is there and has imported everything."""
        return key in self.running and self.running[key].ready()


def row_of(name: str, case: dict[str, object], folder: Path, seconds: float) -> dict[str, object]:
    """What a finished run left."""
    done = folder / "rc"
    row = {
        "name": name,
        "axolotl": case.get("axolotl"),
        "trainer": case.get("trainer", "axolotl"),
        "method": case.get("method"),
        "config": _without_places(config_of(name, case)),
        "alloc_conf": case.get("alloc", "expandable_segments:True"),
        "model": MODELS[str(case["model"])],
        "model_name": case["model"],
        "rc": int(done.read_text()) if done.exists() else -9,
        "seconds": round(seconds, 1),
    }
    watch = folder / "watch.json"
    if watch.exists():
        row.update(json.loads(watch.read_text()))
    ends = row.pop("ends", None)
    if ends is not None:
        row["step_seconds"] = [round(later - earlier, 5) for earlier, later in pairwise(ends)]
    row |= {key: case[key] for key in ("site", "workload", "limit_mib", "share", "foretold") if key in case}
    if row["rc"]:
        row["tail"] = (folder / "log").read_text(errors="replace")[-1500:]
    return row


def _without_places(config: dict[str, object]) -> dict[str, object]:
    """The config as it is recorded: without folders of the machine."""
    kept = {key: value for key, value in config.items() if key not in ("dataset_prepared_path", "output_dir")}
    for key in ("base_model", "model_name_or_path"):
        if key in kept:
            kept[key] = "MODEL"
    kept.pop("dataset_dir", None)
    if "datasets" in kept:
        kept["datasets"] = [
            {key: Path(value).name if str(value).startswith("/") else value for key, value in item.items()}
            for item in config["datasets"]  # type: ignore[attr-defined]
        ]
    return kept


def _site(case: dict[str, object]) -> str:
    """The folder with the installed packages: a case may name another than its trainer's newest."""
    return str(case.get("site") or case.get("trainer") or case["axolotl"])


def _server(case: dict[str, object]) -> tuple[str, str, str]:
    return _site(case), str(case.get("alloc", "expandable_segments:True")), str(case.get("trainer", "axolotl"))


def _memory(case: dict[str, object]) -> float:
    foretold = case.get("foretold") or {}
    return max([ASSUMED_MIB, *(value for name, value in foretold.items() if name.endswith("mib"))])  # type: ignore[attr-defined]


def _next(todo: list[str], running: list[str], cases: dict[str, Any], servers: Servers, room_mib: float) -> str | None:
    """The first case that can start now."""
    taken = sum(_memory(cases[name]) for name in running)
    for name in todo:
        case = cases[name]
        there = (WORK / "models" / str(case["model"])).exists() and servers.ready(_server(case))
        if there and (not running or taken + _memory(case) <= room_mib):
            return name
    return None


def _start(name: str, case: dict[str, Any], server: Server, arguments: argparse.Namespace) -> int:
    """Start a case; its process id."""
    folder = WORK / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(name, case)
    if case.get("trainer"):
        (folder / "method").write_text(case["method"])
    else:
        config["plugins"] = [*config.get("plugins", []), "axolotl_watch.Watch"]  # type: ignore[misc]
    (folder / "config.yml").write_text(json.dumps(config))
    (folder / "trace").write_text("1" if arguments.trace or case.get("trace") else "")
    seen = {"WATCH_LOCK": str(WORK / "turn") if arguments.timed else ""}
    seen["WATCH_KERNELS"] = "1" if arguments.kernels else ""
    seen |= {"WATCH_FRAMES": "1"} if case.get("frames") else {}
    seen["WATCH_LIMIT_MIB"] = str(case.get("limit_mib", ""))
    (folder / "environment").write_text(json.dumps(seen))
    return server.start(folder)


def _keep_row(name: str, row: dict[str, Any], out: Path) -> subprocess.Popen[bytes] | None:
    """Write down what came of a run; what packs its events, if it has any."""
    folder = WORK / "runs" / name
    with (out / "axolotl.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    if row["rc"] and (folder / "log").exists():
        with (out / "failed.log").open("a") as file:
            file.write(f"=== {name}\n{(folder / 'log').read_text(errors='replace')[-6000:]}\n")
    print(name, "rc", row["rc"], row.get("overall_reserved_mib"), f"{row['seconds']} s", flush=True)
    if not (folder / "trace.json").exists():
        return None
    return subprocess.Popen(f"gzip -c '{folder}/trace.json' > '{out / name}.trace.json.gz'", shell=True)


def main() -> None:
    """Run the cases, as many at once as allowed, until done or out of time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--importing", type=int, default=4, help="servers that may start at once")
    parser.add_argument(
        "--room", type=float, default=120, help="GiB that runs side by side may take by their predictions"
    )
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--trace", action="store_true", help="keep every allocator event, in OUT/NAME.trace.json.gz")
    parser.add_argument("--timed", action="store_true", help="time the steps: one run trains at a time, others load")
    parser.add_argument("--kernels", action="store_true", help="count the kernels of each run's last step")
    arguments = parser.parse_args()
    began = time.time()
    cases = json.loads(arguments.cases.read_text())
    for place in ("models", "runs"):
        (WORK / place).mkdir(parents=True, exist_ok=True)
    data()
    needed = list(dict.fromkeys(case["model"] for case in cases.values()))
    some_site = environment(_site(next(iter(cases.values()))), "")
    import_code = f"import axolotl_runs; axolotl_runs.make({needed!r})"
    making = subprocess.Popen([sys.executable, "-c", import_code], env=some_site, cwd=HERE)
    servers = Servers(arguments.importing)
    todo, running, packing = list(cases), {}, []
    while todo or running:
        todo = [name for name in todo if not (WORK / "models" / f"{cases[name]['model']}.failed").exists()]
        servers.keep([_server(cases[name]) for name in (*running, *todo)])
        ending = time.time() - began > arguments.seconds - LAST_START_S
        while len(running) < arguments.jobs and not ending:
            name = _next(todo, list(running), cases, servers, arguments.room * 1024)
            if name is None:
                break
            todo.remove(name)
            running[name] = (_start(name, cases[name], servers.running[_server(cases[name])], arguments), time.time())
        if not running and ending:
            break
        time.sleep(0.3)
        for name, (pid, started) in list(running.items()):
            folder = WORK / "runs" / name
            late = time.time() - started > LONGEST_RUN_S or time.time() - began > arguments.seconds
            if not (folder / "rc").exists() and not late:
                continue
            if late:
                subprocess.run(["kill", "-9", str(pid)], check=False)
            del running[name]
            packing.append(_keep_row(name, row_of(name, cases[name], folder, time.time() - started), arguments.out))
            for place in ("out", "prepared"):
                shutil.rmtree(WORK / place / name, ignore_errors=True)  # trained weights would fill the disk
            model = cases[name]["model"]
            if all(cases[other]["model"] != model for other in (*todo, *running)):
                shutil.rmtree(WORK / "models" / model, ignore_errors=True)
    for packer in packing:
        if packer is not None:
            packer.wait()
    print("not run:", todo, f"{time.time() - began:.0f} s", flush=True)
    making.kill()
    servers.keep([])


if __name__ == "__main__":
    main()
