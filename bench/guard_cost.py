"""What the memory guard costs: the time of a step with and without it. The goal is less than 1 %.

One training run in which the guard sees every other step. Two figures: the ratio of neighbouring steps with and without
it (median of all pairs; needs a quiet machine), and the time spent inside the guard as a share of a step, which decides
because it depends less on what else the machine does. On CUDA the guard reads the card; without it, a stand-in that
hands out a nested dict of the size of torch's. Needs vramwise[train]. On CUDA the model has a billion parameters and a
step 4096 tokens: a short step for a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from vramwise.integrations.transformers import MemoryGuard
from vramwise.training.guard.samples import CudaBackend

GOAL = 0.01
ON_CPU = {
    "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4
}  # fmt: skip
ON_CUDA = {
    "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip


class StandInCuda:
    """As much work for a reading as torch's counters make, without a card."""

    def current_device(self) -> int:
        """One device."""
        return 0

    def get_device_properties(self, device: int) -> Any:
        """A card of 24 GiB."""
        return argparse.Namespace(name="stand-in", total_memory=24 * 1024**3)

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        """17 counters for three pools, as torch 2.13 gives."""
        pools = ("all", "small_pool", "large_pool")
        kinds = ("current", "peak", "allocated", "freed")
        return {
            name: {pool: dict.fromkeys(kinds, 4 * 1024**3) for pool in pools}
            for name in ("allocated_bytes", "reserved_bytes", *(f"counter_{number}" for number in range(15)))
        } | {"num_alloc_retries": 0}

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """What the driver says."""
        return 16 * 1024**3, 24 * 1024**3

    def reset_peak_memory_stats(self, device: int) -> None:
        """Nothing to reset."""


class EveryOtherStep(TrainerCallback):
    """Lets the guard see the even steps only, and times them all, from the start of one to the start of the next."""

    def __init__(self, guard: MemoryGuard) -> None:
        self.guard = guard
        self.watched: list[float] = []
        self.alone: list[float] = []
        self.inside: list[float] = []  # seconds in the guard, for each step it saw
        self._began = 0.0
        self._number = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The hook on the model's forward stays on through all steps: its cost is below what can be measured."""
        self.guard.on_train_begin(args, state, control, **more)

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The step before ends here."""
        now = time.perf_counter()
        if self._number >= 0:
            (self.watched if self._number % 2 == 0 else self.alone).append(now - self._began)
        self._number += 1
        self._began = time.perf_counter()
        self._tell("on_step_begin", args, state, control, more)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Half-time."""
        self._tell("on_pre_optimizer_step", args, state, control, more)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The end."""
        self._tell("on_step_end", args, state, control, more)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Close the log."""
        self.guard.on_train_end(args, state, control, **more)

    def _tell(self, event: str, args: Any, state: Any, control: Any, more: dict[str, Any]) -> None:
        if self._number % 2 == 0:
            began = time.perf_counter()
            getattr(self.guard, event)(args, state, control, **more)
            spent = time.perf_counter() - began
            if event == "on_step_begin":
                self.inside.append(spent)
            else:
                self.inside[-1] += spent


def train(steps: int) -> EveryOtherStep:
    """On a CPU a small model, large enough that a step is what a short step on a GPU is: some 50 ms on one core."""
    cuda = torch.cuda.is_available()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(**(ON_CUDA if cuda else ON_CPU))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 1024, (512, 1024 if cuda else 64))]
    backend = "auto" if cuda else CudaBackend(argparse.Namespace(cuda=StandInCuda()))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=4, report_to=[], save_strategy="no",
            logging_strategy="no", use_cpu=not cuda, bf16=cuda, disable_tqdm=True,
        )  # fmt: skip
        alternate = EveryOtherStep(MemoryGuard(backend=backend, reset_peaks=True, history_entries=50_000))
        Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=rows, callbacks=[alternate]).train()
    if alternate.guard.broken is not None:
        raise SystemExit(f"the guard broke: {alternate.guard.broken!r}")
    return alternate


def main() -> int:
    """Print the figures; fail above the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    timed = train(parser.parse_args().steps)
    warm = len(timed.alone) // 10
    alone, inside = statistics.median(timed.alone[warm:]), statistics.median(timed.inside[warm:])
    pairs = [watched / alone for watched, alone in zip(timed.watched, timed.alone, strict=False)][warm:]
    share = inside / alone
    print(f"step without the guard  {alone * 1000:8.3f} ms   (median of {len(timed.alone) - warm})")
    print(
        f"inside the guard        {inside * 1000:8.3f} ms   = {100 * share:.2f} % (goal: less than {100 * GOAL:.0f} %)"
    )
    print(f"with against without    {100 * (statistics.median(pairs) - 1):+8.2f} %    (median of {len(pairs)} pairs)")
    return 0 if share < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
