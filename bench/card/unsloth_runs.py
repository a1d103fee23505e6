"""Runs of the real Unsloth on a card, some side by side, and what they took: one JSON line each.

    python unsloth_runs.py OUT_DIR --cases cases.json [--part 0:16] [--jobs 4] [--timed] [--seconds 560]

Each case is `name: [model, arguments of from_pretrained, of get_peft_model (null: none), of SFTConfig]`; models are
random weights of real shapes (`models.json`), data is made up (`unsloth_cases.py`). Environment: SITE names a
site-packages folder with Unsloth and what it needs, or SITE_TAR an archive of one. With `--timed` a run has the card
for itself: it trains for some seconds, and each step's seconds are recorded; then the kernels of one more step are
counted. Others import meanwhile: two jobs are enough.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from random_models import make_models
from unsloth_cases import EVALUATED, TARGETS, texts, tokenizer_words

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("UNSLOTH_WORK", "/tmp/unsloth-on-card"))
SITE = Path(os.environ.get("SITE", WORK / "site"))
MODELS = json.loads((HERE / "models.json").read_text())
MIB = 1 << 20
LONGEST_RUN_S = 240
TRAINED_S, FIRST_STEPS, MOST_STEPS = 8.0, 3, 400
LORA = {"r": 16, "lora_alpha": 16, "lora_dropout": 0, "bias": "none", "use_gradient_checkpointing": "unsloth"}
ARGS = {"max_steps": 5, "optim": "adamw_8bit", "learning_rate": 1e-5, "logging_steps": 1, "max_length": 2048}


def one(name: str, case: list[Any], timed: bool) -> dict[str, Any]:
    """What one run took; to be called in a process of its own."""
    from unsloth import FastLanguageModel  # isort: skip
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    turn = (WORK / "turn").open("w")
    if timed:
        fcntl.flock(turn, fcntl.LOCK_EX)
    model_name, load, peft, args = case
    state: dict[str, Any] = {"name": name, "case": case, "steps": [], "widths": [], "eval_widths": []}

    def now() -> list[float]:
        cuda = torch.cuda
        found = (cuda.max_memory_allocated(), cuda.memory_reserved(), cuda.max_memory_reserved())
        return [size / MIB for size in (*found, cuda.memory_allocated())]

    source = str(WORK / "models" / model_name)
    model, tokenizer = FastLanguageModel.from_pretrained(source, **{"max_seq_length": 2048, **load})
    if peft is not None:
        lora = {**LORA, "random_state": 3407, "target_modules": TARGETS, **peft}
        model = FastLanguageModel.get_peft_model(model, **lora)

    class Watch(TrainerCallback):  # type: ignore[misc]
        began = 0.0
        profile: Any = None

        def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
            kinds: dict[str, int] = {}
            for parameter in model.parameters():
                kind = f"{parameter.dtype}{'*' if parameter.requires_grad else ''}"
                kinds[kind] = kinds.get(kind, 0) + parameter.numel()
            state.update(parameters=kinds, load=now())
            torch.cuda.reset_peak_memory_stats()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not timed:
                return
            torch.cuda.synchronize()
            if self.began and time.perf_counter() - self.began > TRAINED_S:
                self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                self.profile.__enter__()
            state.setdefault("begins", []).append(time.perf_counter())

        def on_step_end(self, _: Any, progress: Any, control: Any, **__: Any) -> None:
            if timed:
                torch.cuda.synchronize()
                if self.profile is not None:  # the last step, whose kernels are counted
                    self.profile.__exit__(None, None, None)
                    found = [
                        (row.key[:90], row.count, round(row.device_time_total, 1))
                        for row in self.profile.key_averages()
                    ]
                    state["kernels"] = sorted(found, key=lambda row: -row[2])[:70]
                    control.should_training_stop = True
                else:
                    state.setdefault("ends", []).append(time.perf_counter())
                self.began = self.began if progress.global_step > FIRST_STEPS else time.perf_counter()
            state["steps"].append(now())

    data = Dataset.from_dict({"text": texts()})
    more = {"max_steps": MOST_STEPS, "num_train_epochs": 50, "logging_steps": 100_000} if timed else {}
    config = {**ARGS, "save_strategy": "no", "report_to": "none", "seed": 3407, "dataset_num_proc": 1, **args, **more}
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=data,
        eval_dataset=data.select(range(EVALUATED)) if "eval_strategy" in args else None,
        callbacks=[Watch()],
        args=SFTConfig(output_dir=str(WORK / "out" / name), dataset_text_field="text", **config),
    )

    def watched(step: Callable[..., Any], widths: str) -> Callable[..., Any]:
        def run(inner: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            state[widths].append({key: list(value.shape) for key, value in inputs.items() if hasattr(value, "shape")})
            return step(inner, inputs, *rest, **named)

        return run

    trainer.training_step = watched(trainer.training_step, "widths")
    trainer.prediction_step = watched(trainer.prediction_step, "eval_widths")
    trainer.train()
    state.update(retries=torch.cuda.memory_stats()["num_alloc_retries"], torch=torch.__version__, rc=0)
    state["conf"] = os.environ.get("PYTORCH_ALLOC_CONF")
    return state


def child(name: str, cases: Path, timed: bool) -> None:
    """Run one case and leave what it took, or why it stopped."""
    case = json.loads(cases.read_text())[name]
    try:
        state = one(name, case, timed)
    except BaseException:
        state = {"name": name, "case": case, "rc": 1, "error": traceback.format_exc()[-2500:]}
    begins, ends = state.pop("begins", []), state.pop("ends", [])
    if ends:
        took = [round(end - begin, 5) for begin, end in zip(begins, ends, strict=False)]
        state |= {"step_seconds": took[FIRST_STEPS:], "first_seconds": took[:FIRST_STEPS]}
    (WORK / "runs" / f"{name}.json").write_text(json.dumps(state))


def environment(name: str) -> dict[str, str]:
    """What a run sees."""
    return {
        **os.environ,
        "PYTHONPATH": f"{SITE}:{HERE}",
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "0",
        "TRITON_CACHE_DIR": str(WORK / "triton" / name),
        "OMP_NUM_THREADS": "2",
    }


def start(name: str, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """A process for one case, in a folder of its own: Unsloth writes compiled modules to where it is."""
    folder = WORK / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "unsloth_runs.py"), "--cases", str(arguments.cases.resolve()), "--one", name]
    log = (folder / "log").open("w")
    timed = ["--timed"] if arguments.timed else []
    return subprocess.Popen([*command, *timed], env=environment(name), stdout=log, stderr=log, cwd=folder)


def row_of(name: str, case: list[Any]) -> dict[str, Any]:
    """What a finished run left."""
    left = WORK / "runs" / f"{name}.json"
    row = json.loads(left.read_text()) if left.exists() else {"name": name, "case": case, "rc": -9}
    row["model"] = MODELS[case[0]]
    if row["rc"]:
        row["tail"] = (WORK / "runs" / name / "log").read_text(errors="replace")[-1500:]
    return row


def prepare(names: list[str]) -> None:
    """The site, the models."""
    WORK.mkdir(exist_ok=True)
    (WORK / "runs").mkdir(exist_ok=True)
    if not SITE.exists():
        SITE.mkdir(parents=True)
        subprocess.run(["tar", "-xJf", os.environ["SITE_TAR"], "-C", str(SITE)], check=True)
    code = f"import unsloth_runs; unsloth_runs.make({names!r})"
    subprocess.run([sys.executable, "-c", code], env=environment("make"), cwd=HERE, check=True)


def make(names: list[str]) -> None:
    """Model folders with random weights."""
    make_models(WORK / "models", {name: MODELS[name] for name in names}, tokenizer_words())


def main() -> None:
    """Run the cases, as many at once as allowed, until done or out of time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--part", default=":", help="which of the cases, as a slice: 0:16")
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--timed", action="store_true", help="one run has the card at a time; its steps are timed")
    parser.add_argument("--one", default="", help="run this case here; for the processes that this script starts")
    arguments = parser.parse_args()
    if arguments.one:
        return child(arguments.one, arguments.cases, arguments.timed)
    began = time.time()
    first, _, last = arguments.part.partition(":")
    named = list(json.loads(arguments.cases.read_text()).items())
    cases = dict(named[int(first or 0) : int(last or len(named))])
    prepare(sorted({case[0] for case in cases.values()}))
    print(f"set up in {time.time() - began:.0f} s", flush=True)
    todo, running = list(cases), {}
    while todo or running:
        late = time.time() - began > arguments.seconds - 60
        while todo and not late and len(running) < arguments.jobs:
            running[todo[0]] = (start(todo[0], arguments), time.time())
            todo.pop(0)
        if late and todo:
            print("out of time, not run:", " ".join(todo), flush=True)
            todo.clear()
        time.sleep(0.3)
        for name, (process, since) in list(running.items()):
            waits = arguments.jobs if arguments.timed else 1  # for the card, which one run has at a time
            over = time.time() - since > LONGEST_RUN_S * waits or time.time() - began > arguments.seconds
            if process.poll() is None and not over:
                continue
            process.kill()
            process.wait()
            del running[name]
            row = row_of(name, cases[name])
            with (arguments.out / "unsloth.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            peaks = [[round(step[0]), round(step[2])] for step in row.get("steps", [])[-2:]]
            print(name, row["rc"], peaks, row.get("error", "")[-300:], f"{time.time() - since:.0f} s", flush=True)
    return None


if __name__ == "__main__":
    main()
