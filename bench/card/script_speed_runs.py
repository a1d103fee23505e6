"""Times training scripts, or Axolotl's configs, on a card that they have to themselves: one JSON line each.

    python script_speed_runs.py OUT_DIR SECONDS CASES.json

Cases are drawn by `script_speed_cases.py`, or by `speed_cases.py` for Axolotl (TRAINER=axolotl). A process that has
imported everything forks a child for each, one after the other: a child that prepares beside another slows the other's
host. Of the seven steps two warm up, three are timed, one is marked (where host and card are at the ends of forward,
backward, clipping and update) and one is profiled. Then the host alone is timed, on a batch so small that the card is
never the slower one.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import axolotl_runs
from fork_server import OWN, spoilt

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("SPEED_WORK", "/dev/shm/speed"))
IMPORTED = (
    *(
        "torch",
        "transformers",
        "transformers.trainer",
        "peft",
        "accelerate",
        "datasets",
        "trl",
        "trl.trainer.sft_trainer",
    ),
    *("transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2"),
    *("liger_kernel.transformers", "bitsandbytes"),
)
AXOLOTL = os.environ.get("TRAINER") == "axolotl"
MARKED, PROFILED = 6, 7
LONGEST_S, LAST_CASE_S = 60, 9
SMALL_TOKENS, SMALL_TURNS = 16, 6
# Sizes of a rehearsal on a processor.
REHEARSED = {"num_hidden_layers": 2, "vocab_size": 6400, "hidden_size": 64, "intermediate_size": 128}
REHEARSED |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
FOUND: dict[str, Any] = {}


def synchronize() -> float:
    """Wait for the card; the moment after."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Marks:
    """Where host and card are at named moments, in seconds since the first."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[tuple[str, float, Any]] = []

    def mark(self, name: str) -> None:
        """A moment."""
        import torch

        if self.on and torch.cuda.is_available():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.seen.append((name, time.perf_counter(), event))

    def around(self, owner: Any, method: str, name: str) -> None:
        """Mark the begin and end of a method."""
        own: Callable[..., Any] = getattr(owner, method)

        def marked(*arguments: Any, **words: Any) -> Any:
            self.mark(f"{name} begins")
            result = own(*arguments, **words)
            self.mark(f"{name} ends")
            return result

        setattr(owner, method, marked)

    def listed(self) -> list[tuple[str, float, float]]:
        """Name, the host's clock, the card's clock."""
        if not self.seen:
            return []
        _, start, first = self.seen[0]
        return [(name, round(at - start, 6), round(first.elapsed_time(one) / 1e3, 6)) for name, at, one in self.seen]


class Timer:
    """Looks at every step of the script's Trainer."""

    def __init__(self, trainer: Any, detailed: bool) -> None:
        from transformers import TrainerCallback

        self.trainer, self.detailed, self.marks = trainer, detailed, Marks()
        self.ends: list[float] = []
        self.profile: Any = None
        timer = self

        class Callback(TrainerCallback):
            """Hands on."""

            def on_train_begin(self, args: Any, state: Any, control: Any, **words: Any) -> None:
                timer.wrap()

            def on_step_begin(self, args: Any, state: Any, control: Any, **words: Any) -> None:
                timer.begin(state.global_step + 1)

            def on_step_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
                timer.end(state.global_step)

        trainer.add_callback(Callback())

    def wrap(self) -> None:
        """Mark the parts of a step; note the shapes of batches."""
        trainer = self.trainer
        self.marks.around(trainer, "compute_loss", "forward")
        self.marks.around(trainer.accelerator, "backward", "backward")
        self.marks.around(trainer.accelerator, "clip_grad_norm_", "clip")
        self.marks.around(trainer.optimizer, "step", "update")
        step = trainer.training_step
        FOUND["widths"] = []

        def training_step(model: Any, inputs: Any, *arguments: Any, **words: Any) -> Any:
            FOUND["widths"].append({name: list(one.shape) for name, one in inputs.items() if hasattr(one, "shape")})
            return step(model, inputs, *arguments, **words)

        trainer.training_step = training_step

    def begin(self, number: int) -> None:
        """A step begins."""
        import torch

        if number == MARKED:
            self.marks.on = True
            self.marks.mark("step begins")
        if number == PROFILED:
            kinds = [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            if self.detailed or not kinds:
                kinds.append(torch.profiler.ProfilerActivity.CPU)
            self.profile = torch.profiler.profile(activities=kinds)
            self.profile.__enter__()

    def end(self, number: int) -> None:
        """A step is over."""
        self.marks.mark("step ends")
        self.marks.on = False
        if number < MARKED:
            self.ends.append(synchronize())
        if self.profile is not None:
            synchronize()
            self.profile.__exit__(None, None, None)
            _list_kernels(self.profile)
            self.profile = None

    def finish(self) -> None:
        """What was seen."""
        FOUND["step_seconds"] = [round(later - earlier, 5) for earlier, later in pairwise(self.ends)][1:]
        synchronize()
        FOUND["marks"] = self.marks.listed()
        FOUND["host"] = self.host_alone()

    def host_alone(self) -> list[list[float]]:
        """Seconds of the host for forward and backward of a tiny batch, and until the card is done too."""
        import torch

        trainer, found = self.trainer, []
        model = trainer.model_wrapped
        ids = torch.randint(10, 5000, (1, SMALL_TOKENS), device=trainer.args.device)
        inputs = {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}
        inputs = {name: one for name, one in inputs.items() if name in FOUND["widths"][-1]}
        own = type(trainer).compute_loss
        for _ in range(SMALL_TURNS):
            begin = synchronize()
            with trainer.compute_loss_context_manager():
                loss = own(trainer, model, dict(inputs), num_items_in_batch=torch.tensor(SMALL_TOKENS - 1))
            middle = time.perf_counter()
            type(trainer.accelerator).backward(trainer.accelerator, loss)
            end = time.perf_counter()
            found.append([round(one, 6) for one in (middle - begin, end - middle, synchronize() - end)])
            model.zero_grad()
        return found


def _list_kernels(profile: Any) -> None:
    """Kernels by name; with the host's operations where those were looked at too."""
    rows = profile.key_averages()
    kernels = [(row.key[:90], row.count, round(row.device_time_total, 1)) for row in rows if _on_card(row)]
    kernels.sort(key=lambda row: -row[2])
    FOUND["kernels"] = kernels[:70]
    FOUND["kernel_count"] = sum(row[1] for row in kernels)
    FOUND["kernel_us"] = round(sum(row[2] for row in kernels), 1)
    on_host = [(row.key[:60], row.count, round(row.self_cpu_time_total, 1)) for row in rows if not _on_card(row)]
    on_host.sort(key=lambda row: -row[2])
    FOUND["operations"] = on_host[:90]


def _on_card(row: Any) -> bool:
    marked = row.key.startswith("Optimizer.")  # torch's own mark around a step, no kernel
    return str(row.device_type).endswith("CUDA") and row.device_time_total > 0 and not marked


def child(name: str, case: dict[str, Any], folder: Path, detailed: bool) -> None:
    """One script, in this process."""
    os.setsid()
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import torch
    from transformers import Trainer

    os.chdir(WORK / "models")
    began = time.perf_counter()
    row: dict[str, Any] = {"name": name, "torch": torch.__version__, **case}
    timers: list[Timer] = []
    made = Trainer.__init__

    def __init__(self: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it takes that one's place)
        made(self, *arguments, **words)
        timers.append(Timer(self, detailed))

    Trainer.__init__ = __init__
    try:
        if torch.cuda.is_available():
            torch.cuda.init()
        _train(name, case, folder)
        row["rc"] = 0
    except BaseException:
        traceback.print_exc()
        row["rc"] = 1
    for timer in timers:
        try:
            timer.finish()
        except BaseException:
            traceback.print_exc()
    row |= FOUND
    row["seconds"] = round(time.perf_counter() - began, 2)
    with (folder / "speed.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    sys.stdout.flush()
    os._exit(row["rc"])


def _train(name: str, case: dict[str, Any], folder: Path) -> None:
    """Run the script, or Axolotl with the config."""
    if "script" in case:
        script = folder / f"{name}.py"
        script.write_text(case["script"])
        runpy.run_path(str(script), run_name="__main__")
        return
    from axolotl.cli.train import do_cli

    config = folder / f"{name}.yml"
    prepared = str(WORK / "prepared" / case["workload"])  # the same for all variants
    config.write_text(json.dumps({**axolotl_runs.config_of(name, case), "dataset_prepared_path": prepared}))
    do_cli(config=str(config))


def data_module() -> ModuleType:
    """`timed_data`: rows of made-up tokens, all of one length."""
    module = ModuleType("timed_data")

    def rows(length: int, count: int = 256) -> Any:
        import numpy
        from datasets import Dataset

        draw = numpy.random.default_rng(3)
        ids = [draw.integers(10, 5000, length).tolist() for _ in range(count)]
        return Dataset.from_dict({"input_ids": ids, "labels": ids})

    module.rows = rows  # type: ignore[attr-defined]
    return module


def make_models(names: list[str]) -> None:
    """Folders with random weights, in a process of its own: the parent must not touch CUDA."""
    pid = os.fork()
    if pid == 0:
        try:
            import random_models
            import torch

            shapes = json.loads((HERE / "models.json").read_text())
            if os.environ.get("SPEED_REHEARSAL"):
                shapes = {name: {**shape, **REHEARSED} for name, shape in shapes.items()}
            words = " ".join(f"word{number}" for number in range(3000))
            device = "cuda" if torch.cuda.is_available() else "cpu"
            random_models.make_models(WORK / "models", {name: shapes[name] for name in names}, words, device)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        sys.exit("the models could not be made")


def warm() -> None:
    """Import what scripts import, as far as children can use CUDA afterwards; else start again with less.

    bitsandbytes asks for the card's capability when it is imported, which would start CUDA here: it is told.
    """
    import torch

    few = os.environ.get("SPEED_FEW_IMPORTS")
    own, torch.cuda.get_device_capability = torch.cuda.get_device_capability, lambda *_: (9, 0)
    for name in (*IMPORTED[: 2 if few else None], *(OWN["axolotl"] if AXOLOTL and not few else ())):
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"{name} is left to the runs: {error}", flush=True)
    torch.cuda.get_device_capability = own
    if not few and spoilt():
        print("imports touched CUDA: starting again with few", flush=True)
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "SPEED_FEW_IMPORTS": "1"})


def main() -> None:
    """Run the cases in their order until done or out of time."""
    folder, seconds = Path(sys.argv[1]).resolve(), float(sys.argv[2])
    cases = json.loads(Path(sys.argv[3]).read_text())
    began = float(os.environ.setdefault("SPEED_BEGAN", str(time.time())))
    (WORK / "models").mkdir(parents=True, exist_ok=True)
    if AXOLOTL:
        axolotl_runs.data()
    sys.path.insert(0, str(HERE))
    warm()
    sys.modules["timed_data"] = data_module()
    print(f"imported in {time.time() - began:.0f} s", flush=True)
    make_models(sorted({case["model"] for case in cases.values()}))
    print(f"set up in {time.time() - began:.0f} s", flush=True)
    running: dict[int, float] = {}
    todo = list(cases)
    detailed = {next((name for name in cases if cases[name]["workload"] == one), "") for one in _workloads(cases)}
    while todo or running:
        left = seconds - (time.time() - began)
        while todo and not running and left > LAST_CASE_S:
            name = todo.pop(0)
            pid = os.fork()
            if pid == 0:
                child(name, cases[name], folder, name in detailed)
            running[pid] = time.time()
        if not running:
            break
        time.sleep(0.05)
        for pid, started in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[pid]
            elif time.time() - began > seconds - 2 or time.time() - started > LONGEST_S:
                os.kill(pid, signal.SIGKILL)
    print("not run:", todo, f"{time.time() - began:.0f} s", flush=True)


def _workloads(cases: dict[str, Any]) -> list[str]:
    return sorted({case["workload"] for case in cases.values()})


if __name__ == "__main__":
    main()
