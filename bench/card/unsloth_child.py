"""One run of the real Unsloth in a process of its own: what it took is left as a JSON file.

    python unsloth_child.py CASES.json NAME [--timed]

With `--timed` the run trains a few steps, leaves the file NAME.ready and waits for NAME.go: then it has the card for
itself. Each step's seconds are recorded, then one step in parts (forward, backward, update), then the kernels of one
more step. NAME.timed says that the card is free again.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unsloth_cases import EVALUATED, TARGETS, texts

WORK = Path(os.environ.get("UNSLOTH_WORK", "/tmp/unsloth-on-card"))
MIB = 1 << 20
# A kernel is loaded when it is first used, and others are used for other numbers of tokens: the steps before that has
# settled are not timed. They are at least so many, and go on for so many seconds unless they are enough.
FIRST_STEPS, ENOUGH_STEPS, FIRST_S = 3, 30, float(os.environ.get("FIRST_SECONDS", "45"))
LEAST_STEPS, TRAINED_S, MOST_STEPS = 4, 4.0, 400
LORA = {"r": 16, "lora_alpha": 16, "lora_dropout": 0, "bias": "none", "use_gradient_checkpointing": "unsloth"}
ARGS = {"max_steps": 5, "optim": "adamw_8bit", "learning_rate": 1e-5, "logging_steps": 1, "max_length": 2048}
# Whose operations on the host are counted too
WITH_HOST = os.environ.get("HOST_PROFILES", "").split(",")


class Turn:
    """When a timed run has the card, and what it measures then; steps are `first`, `timed`, `parts`, `kernels`."""

    def __init__(self, name: str, state: dict[str, Any]) -> None:
        """Nothing is measured yet."""
        self.name, self.state = name, state
        self.kind, self.began, self.profile = "first", 0.0, None
        self.marks: list[tuple[str, float]] = []

    def file(self, word: str) -> Path:
        """What is said to, and by, the parent."""
        return WORK / "runs" / f"{self.name}.{word}"

    def before(self, done: int) -> None:
        """A step begins; `done` were before it."""
        import torch

        torch.cuda.synchronize()
        if self.kind == "first" and self._warm(done):
            self.file("ready").touch()
            while not self.file("go").exists():
                time.sleep(0.05)
            self.kind, self.began = "timed", time.perf_counter()
            self.state["turn_at"] = time.time()
        elif self.kind == "timed" and self._enough():
            self.kind = "parts"
        elif self.kind == "parts":
            self.kind = "kernels"
            activities = [torch.profiler.ProfilerActivity.CUDA]
            if self.name in WITH_HOST:
                activities.append(torch.profiler.ProfilerActivity.CPU)
            self.profile = torch.profiler.profile(activities=activities)
            self.profile.__enter__()
        self.marks = [("begin", time.perf_counter())]

    def _warm(self, done: int) -> bool:
        self.began = self.began or time.perf_counter()
        return done >= FIRST_STEPS and (done >= ENOUGH_STEPS or time.perf_counter() - self.began > FIRST_S)

    def _enough(self) -> bool:
        over = time.perf_counter() - self.began > TRAINED_S
        return over and len(self.state.get("step_seconds", ())) >= LEAST_STEPS

    def mark(self, word: str) -> None:
        """A part of the step is done; waits for the card in the one step that is taken apart."""
        import torch

        if self.kind == "parts":
            torch.cuda.synchronize()
            self.marks.append((word, time.perf_counter()))

    def after(self) -> bool:
        """A step ended; whether the run is done."""
        import torch

        torch.cuda.synchronize()
        took = time.perf_counter() - self.marks[0][1]
        if self.kind in ("first", "timed"):
            self.state.setdefault("first_seconds" if self.kind == "first" else "step_seconds", []).append(
                round(took, 5)
            )
        elif self.kind == "parts":
            self.mark("end")
            pairs = zip(self.marks, self.marks[1:], strict=False)
            self.state["parts"] = [(word, round(at - since, 5)) for (_, since), (word, at) in pairs]
        else:
            self.state["profiled_seconds"] = round(took, 5)
            self.file("timed").touch()
            self._count()
            return True
        return False

    def _count(self) -> None:
        self.profile.__exit__(None, None, None)
        found = self.profile.key_averages()
        kernels = [(row.key[:90], row.count, round(row.self_device_time_total, 1)) for row in found]
        self.state["kernels"] = sorted((row for row in kernels if row[2]), key=lambda row: -row[2])[:140]
        if self.name in WITH_HOST:
            host = [(row.key[:90], row.count, round(row.self_cpu_time_total, 1)) for row in found]
            self.state["host"] = sorted((row for row in host if row[2]), key=lambda row: -row[2])[:120]


def write_trace(path: Path) -> None:
    """Every allocator event: [action, address, size, frames by number], and the frames."""
    import torch

    frames: dict[str, int] = {}
    events = []
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        places = [
            f"{frame['filename'].split('site-packages/')[-1].split('/sites/')[-1]}:{frame['line']}:{frame['name']}"
            for frame in event.get("frames", ())
            if frame["filename"].endswith(".py")
        ]
        number = frames.setdefault(" < ".join(places[:12]), len(frames))
        events.append([event["action"], event.get("addr", 0), event["size"], number])
    with gzip.open(path, "wt") as file:
        json.dump({"frames": list(frames), "events": events}, file)


def one(name: str, case: list[Any], timed: bool) -> dict[str, Any]:
    """What one run took."""
    from unsloth import FastLanguageModel  # isort: skip
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    model_name, load, peft, args, *more_of_case = case
    for told in more_of_case:  # a smaller card
        if limit := told.get("limit_mib"):
            torch.cuda.set_per_process_memory_fraction(limit * MIB / torch.cuda.mem_get_info()[1])
        if told.get("trace"):
            torch.cuda.memory._record_memory_history(max_entries=5_000_000, context="alloc", stacks="python")
    state: dict[str, Any] = {"name": name, "case": case, "steps": [], "widths": [], "eval_widths": []}
    clock: dict[str, float] = {"imported": time.time()}
    state["clock"] = clock
    turn = Turn(name, state) if timed else None

    def now() -> list[float]:
        cuda = torch.cuda
        found = (cuda.max_memory_allocated(), cuda.memory_reserved(), cuda.max_memory_reserved())
        return [size / MIB for size in (*found, cuda.memory_allocated())]

    source = str(WORK / "models" / model_name)
    while not (WORK / "models" / f"{model_name}.made").exists():
        time.sleep(0.1)
    model, tokenizer = FastLanguageModel.from_pretrained(source, **{"max_seq_length": 2048, **load})
    if peft is not None:
        lora = {**LORA, "random_state": 3407, "target_modules": TARGETS, **peft}
        model = FastLanguageModel.get_peft_model(model, **lora)
    clock["loaded"] = time.time()

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
            kinds: dict[str, int] = {}
            for parameter in model.parameters():
                kind = f"{parameter.dtype}{'*' if parameter.requires_grad else ''}"
                kinds[kind] = kinds.get(kind, 0) + parameter.numel()
            state.update(parameters=kinds, load=now(), free=list(torch.cuda.mem_get_info()))
            clock["trains"] = time.time()
            torch.cuda.reset_peak_memory_stats()

        def on_step_begin(self, _: Any, progress: Any, *__: Any, **___: Any) -> None:
            if turn is not None:
                turn.before(progress.global_step)

        def on_step_end(self, _: Any, progress: Any, control: Any, **__: Any) -> None:
            state["steps"].append(now())
            clock.setdefault("first_step", time.time())
            if turn is not None and turn.after():
                control.should_training_stop = True

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
            if turn is not None:
                turn.mark("data")
            return step(inner, inputs, *rest, **named)

        return run

    def marked(work: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
        def run(*rest: Any, **named: Any) -> Any:
            turn.mark(before)
            result = work(*rest, **named)
            turn.mark(after)
            return result

        return run

    trainer.training_step = watched(trainer.training_step, "widths")
    trainer.prediction_step = watched(trainer.prediction_step, "eval_widths")
    if turn is not None:
        trainer.accelerator.backward = marked(trainer.accelerator.backward, "forward", "backward")
    trainer.train()
    state.update(retries=torch.cuda.memory_stats()["num_alloc_retries"], torch=torch.__version__, rc=0)
    state["conf"] = os.environ.get("PYTORCH_ALLOC_CONF")
    if any(told.get("trace") for told in more_of_case):
        write_trace(WORK / "runs" / f"{name}.trace.json.gz")
    return state


def main(cases: Path, name: str, timed: bool) -> None:
    """Run one case and leave what it took, or why it stopped."""
    case = json.loads(cases.read_text())[name]
    began = time.time()
    try:
        state = one(name, case, timed)
        state["clock"] = {word: round(at - began, 1) for word, at in state["clock"].items()}
    except BaseException:
        state = {"name": name, "case": case, "rc": 1, "error": traceback.format_exc()[-2500:]}
    left = WORK / "runs" / f"{name}.json"
    left.with_suffix(".part").write_text(json.dumps(state))
    left.with_suffix(".part").rename(left)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "--timed" in sys.argv)
