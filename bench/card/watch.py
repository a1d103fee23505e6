"""Watches a training that runs on transformers' Trainer, and changes nothing.

Memory at every step and evaluation batch, shapes of batches, allocator events.
Writes $WATCH_OUT; with $WATCH_TRACE every allocator event since this was imported, with Python frames. With
$WATCH_LOCK, a file, steps are timed: whoever holds the lock has the card's multiprocessors to itself, others load; with
$WATCH_KERNELS the last step's kernels are counted by name.
$WATCH_LIMIT_MIB is all the memory that the allocator may take: a smaller card.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

MIB = 1 << 20
STATE: dict[str, Any] = {"steps": [], "widths": [], "eval_widths": [], "evals": [], "eval_peaks": []}
MARKS: list[tuple[int, str]] = []
_reset = torch.cuda.reset_peak_memory_stats

if os.environ.get("WATCH_TRACE"):
    # Frames cost a run under checkpointing its life in some versions: $WATCH_FRAMES asks for them.
    frames = {"stacks": "python"} if os.environ.get("WATCH_FRAMES") else {"context": None}
    torch.cuda.memory._record_memory_history(max_entries=1_500_000, **frames)

TIMED = os.environ.get("WATCH_LOCK", "")
if limit := int(os.environ.get("WATCH_LIMIT_MIB") or 0):
    torch.cuda.set_per_process_memory_fraction(limit * MIB / torch.cuda.mem_get_info()[1])


def mark(name: str) -> None:
    """A moment, to be found among the allocator's events by its time."""
    MARKS.append((time.time_ns() // 1000, name))


def _stats() -> dict[str, int]:
    return torch.cuda.memory_stats()


def _now() -> list[float]:
    stats = _stats()
    names = ("allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak")
    return [stats[name] / MIB for name in (*names, "allocated_bytes.all.current")]


def _keep() -> None:
    stats = _stats()
    for key, name in (("allocated", "allocated_bytes.all.peak"), ("reserved", "reserved_bytes.all.peak")):
        label = f"overall_{key}_mib" if STATE.get("begun") else f"load_overall_{key}_mib"
        STATE[label] = max(STATE.get(label, 0), stats[name] / MIB)


def _reset_keeping(*arguments: Any, **words: Any) -> None:
    _keep()
    mark("peaks reset")
    _reset(*arguments, **words)


torch.cuda.reset_peak_memory_stats = torch.cuda.memory.reset_peak_memory_stats = _reset_keeping
_empty = torch.cuda.empty_cache


def _empty_marked() -> None:
    mark("empty_cache")
    _empty()


torch.cuda.empty_cache = torch.cuda.memory.empty_cache = _empty_marked


def _write() -> None:
    Path(os.environ["WATCH_OUT"]).write_text(json.dumps(STATE))


def finish() -> None:
    """The last figures, and the events."""
    if not torch.cuda.is_initialized():
        return
    _keep()
    stats = _stats()
    STATE.update(retries=stats["num_alloc_retries"], ooms=stats["num_ooms"])
    _write()
    if os.environ.get("WATCH_TRACE"):
        _write_trace(os.environ["WATCH_TRACE"])


def _write_trace(path: str) -> None:
    """Allocator events in few letters: [action, address, size, frames, time, stream], frames and streams by number."""
    frames: dict[str, int] = {}
    streams: dict[int, int] = {}
    events = []
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        text = ""
        if event["action"] == "alloc":
            places = [
                f"{frame['filename'].split('site-packages/')[-1].split('/sites/')[-1]}:{frame['line']}:{frame['name']}"
                for frame in event.get("frames", ())
                if frame["filename"].endswith(".py")
            ]
            text = " < ".join(places[:9])
        number = frames.setdefault(text, len(frames))
        stream = streams.setdefault(event.get("stream", 0), len(streams))
        events.append([event["action"], event.get("addr", 0), event["size"], number, event["time_us"], stream])
    Path(path).write_text(json.dumps({"marks": MARKS, "frames": list(frames), "events": events}))


def _take_turn() -> None:
    """Wait until the card is ours; the lock goes with this process at the latest."""
    STATE["ends"] = []
    turn = os.open(TIMED, os.O_WRONLY | os.O_CREAT)
    fcntl.flock(turn, fcntl.LOCK_EX)
    TURN.append(turn)


TURN: list[int] = []


def _moment() -> float:
    """Now, with everything done that was asked of the card."""
    torch.cuda.synchronize()
    return time.perf_counter()


class Kernels:
    """Every kernel of one step by name: how often it ran and for how long."""

    def __init__(self) -> None:
        self.profile: Any = None

    def begin(self) -> None:
        """Look from here on."""
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.profile.__enter__()

    def end(self) -> None:
        """Add up what was seen."""
        if self.profile is None:
            return
        torch.cuda.synchronize()
        self.profile.__exit__(None, None, None)
        found = [(row.key[:90], row.count, round(row.device_time_total, 1)) for row in self.profile.key_averages()]
        found = sorted((row for row in found if row[2]), key=lambda row: -row[2])
        STATE["kernels"] = found[:70]
        STATE["kernel_count"] = sum(row[1] for row in found)
        STATE["kernel_us"] = round(sum(row[2] for row in found), 1)
        self.profile = None


KERNELS = Kernels()


class Callback(TrainerCallback):
    """Looks at the ends of loading, steps and evaluations."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **words: Any) -> None:
        """Loading is over."""
        _keep()
        mark("train begin")
        stats = _stats()
        STATE.update(
            torch=torch.__version__,
            load_allocated_mib=stats["allocated_bytes.all.current"] / MIB,
            load_peak_allocated_mib=stats["allocated_bytes.all.peak"] / MIB,
            load_peak_reserved_mib=stats["reserved_bytes.all.peak"] / MIB,
            load_reserved_mib=stats["reserved_bytes.all.current"] / MIB,
        )
        kinds: dict[str, int] = {}
        for _, parameter in model.named_parameters():
            kind = f"{parameter.dtype}{'*' if parameter.requires_grad else ''}"
            kinds[kind] = kinds.get(kind, 0) + parameter.numel()
        STATE["parameters"] = kinds
        _reset()
        STATE["begun"] = True
        _write()
        if TIMED:
            _take_turn()

    def on_step_begin(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        """A step begins."""
        mark(f"step {state.global_step + 1}")
        if os.environ.get("WATCH_KERNELS") and state.global_step + 1 == state.max_steps:
            KERNELS.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        """A step is over."""
        if TIMED and KERNELS.profile is None:  # looking at kernels slows a step
            STATE["ends"].append(_moment())
        KERNELS.end()
        mark(f"step {state.global_step} end")
        STATE["steps"].append(_now())
        _keep()
        _write()

    def on_train_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        """The next one may train."""
        if TURN:
            os.close(TURN.pop())

    def on_evaluate(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        """An evaluation is over."""
        mark("evaluated")
        STATE["evals"].append(_now())


def _shapes(inputs: Any) -> dict[str, Any]:
    if not hasattr(inputs, "items"):
        return {"rows": len(inputs)}
    shapes = {name: list(value.shape) for name, value in inputs.items() if hasattr(value, "shape")}
    if not TIMED:
        shapes |= _counts(inputs)
    return shapes


def _counts(inputs: Any) -> dict[str, Any]:
    """Tokens of every row, and how many are trained on; counted on the CPU: nothing more on the card."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if name.endswith("attention_mask") and value is not None and value.dim() == 2:
            mask = value.cpu() != 0
            found["padded"] = found.get("padded", False) or not bool(mask.all())
            found[name.replace("attention_mask", "tokens")] = mask.sum(1).tolist()
        elif name.endswith("labels") and getattr(value, "dim", int)() == 2:
            found[name.replace("labels", "trained")] = (value.cpu() != -100).sum(1).tolist()
        elif name.endswith("completion_mask"):
            found[name.replace("completion_mask", "trained")] = (value.cpu() != 0).sum(1).tolist()
    if "cu_seq_lens_q" in inputs:
        found["sequence_ends"] = inputs["cu_seq_lens_q"].tolist()
    return found


def watched(trainer: Any) -> TrainerCallback:
    """Wraps the trainer's two steps to see what comes; the callback to add to it."""
    step, predict = trainer.training_step, trainer.prediction_step

    def training_step(model: Any, inputs: Any, *arguments: Any, **words: Any) -> Any:
        STATE["widths"].append(_shapes(inputs))
        mark("micro-step")
        return step(model, inputs, *arguments, **words)

    def prediction_step(model: Any, inputs: Any, *arguments: Any, **words: Any) -> Any:
        STATE["eval_widths"].append(_shapes(inputs))
        out = predict(model, inputs, *arguments, **words)
        _keep()
        STATE["eval_peaks"].append(_now())
        return out

    trainer.training_step, trainer.prediction_step = training_step, prediction_step
    return Callback()


def watch_every_trainer() -> None:
    """Every Trainer that is made from here on is watched."""
    from transformers import Trainer

    made = Trainer.__init__

    def __init__(self: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it takes that one's place)
        made(self, *arguments, **words)
        self.add_callback(watched(self))

    Trainer.__init__ = __init__
