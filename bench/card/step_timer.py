"""Times the steps of a transformers Trainer: whole steps, where host and card are in one of them, its kernels.

Of nine steps two warm up (Triton compiles, the optimizer makes its states), six are timed, of which the last is marked
(where host and card are at the ends of forward, backward, clipping and update), and one is profiled. Then the host
alone is timed, on a batch so small that the card is never the slower one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

MARKED, PROFILED = 8, 9
_SMALL_TOKENS, _SMALL_TURNS = 16, 6
_LONGEST_NAME = 140


def synchronize() -> float:
    """Wait for the card; the moment after."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def busy_seconds() -> float:
    """Seconds that the machine's processors have worked, all together, since it started."""
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


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
    """Looks at every step of a Trainer; `done` is called with what was seen after the profiled one."""

    def __init__(self, trainer: Any, done: Callable[[dict[str, Any]], None]) -> None:
        from transformers import TrainerCallback

        self.trainer, self.done = trainer, done
        self.marks, self.ends, self.found = Marks(), [], {}
        self.busy = 0.0
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
        self.found["widths"] = []

        def training_step(model: Any, inputs: Any, *arguments: Any, **words: Any) -> Any:
            shapes = {name: list(one.shape) for name, one in inputs.items() if hasattr(one, "shape")}
            self.found["widths"].append(shapes)
            return step(model, inputs, *arguments, **words)

        trainer.training_step = training_step

    def begin(self, number: int) -> None:
        """A step begins."""
        import torch

        if number == MARKED:
            self.marks.on = True
            self.marks.mark("step begins")
        if number == PROFILED:
            seen = torch.profiler.ProfilerActivity
            self.profile = torch.profiler.profile(activities=[seen.CUDA if torch.cuda.is_available() else seen.CPU])
            self.profile.__enter__()

    def end(self, number: int) -> None:
        """A step is over."""
        self.marks.mark("step ends")
        self.marks.on = False
        if self.profile is not None:
            synchronize()
            self.profile.__exit__(None, None, None)
            self.finish()
            return
        self.ends.append(synchronize())
        if number == 2:
            self.busy = busy_seconds()
        if number == MARKED:
            self.found["busy_cores"] = round((busy_seconds() - self.busy) / (self.ends[-1] - self.ends[1]), 2)

    def finish(self) -> None:
        """Hand over what was seen."""
        self.found["step_seconds"] = [round(later - earlier, 5) for earlier, later in pairwise(self.ends)][1:]
        self.found["marks"] = self.marks.listed()
        self.found |= listed_kernels(self.profile)
        self.done(self.found)

    def host_alone(self) -> list[list[float]]:
        """Seconds of the host for forward and backward of a tiny batch, and until the card is done too."""
        import torch

        trainer, found = self.trainer, []
        model = trainer.model_wrapped
        ids = torch.randint(10, 5000, (1, _SMALL_TOKENS), device=trainer.args.device)
        inputs = {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}
        inputs["position_ids"] = torch.arange(_SMALL_TOKENS, device=ids.device)[None]
        inputs = {name: one for name, one in inputs.items() if name in self.found["widths"][-1]}
        own = type(trainer).compute_loss
        for _ in range(_SMALL_TURNS):
            begin = synchronize()
            with trainer.compute_loss_context_manager():
                loss = own(trainer, model, dict(inputs), num_items_in_batch=torch.tensor(_SMALL_TOKENS - 1))
            middle = time.perf_counter()
            type(trainer.accelerator).backward(trainer.accelerator, loss)
            end = time.perf_counter()
            found.append([round(one, 6) for one in (middle - begin, end - middle, synchronize() - end)])
            model.zero_grad()
        return found


def listed_kernels(profile: Any) -> dict[str, Any]:
    """Kernels by name, and all in their order."""
    events = [event for event in profile.profiler.kineto_results.events() if _on_card(event)]
    events.sort(key=lambda event: event.start_ns())
    first = events[0].start_ns() if events else 0
    names: dict[str, int] = {}
    sums: dict[str, list[float]] = {}
    order: list[list[float]] = []
    for event in events:
        name, us = event.name()[:_LONGEST_NAME], event.duration_ns() / 1e3
        order.append([names.setdefault(name, len(names)), (event.start_ns() - first) // 100 / 10, round(us, 1)])
        own = sums.setdefault(name, [0, 0.0])
        own[0] += 1
        own[1] += us
    kernels = sorted(([name, count, round(us, 1)] for name, (count, us) in sums.items()), key=lambda row: -row[2])
    found: dict[str, Any] = {"kernels": kernels, "kernel_us": round(sum(row[2] for row in kernels), 1)}
    found["order"] = {"names": list(names), "kernels": order}
    return found


def _on_card(event: Any) -> bool:
    marked = event.name().startswith(("Optimizer.", "ProfilerStep"))  # torch's own marks, no kernels
    return str(event.device_type()).endswith("CUDA") and event.duration_ns() > 0 and not marked
