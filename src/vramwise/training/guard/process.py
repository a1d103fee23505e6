"""What a plan asks of a training process besides watching it: a memory limit, and a record if memory runs out."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from vramwise.training.guard import oom
from vramwise.training.plan import TrainPlan

if TYPE_CHECKING:
    from vramwise.training.guard.callback import MemoryGuard


def keep_limit(plan: TrainPlan) -> None:
    """Limit what the allocator may reserve to the plan's limit (`--memory-limit`), if it has one and there is a GPU."""
    if plan.memory_limit_bytes is None:
        return
    import torch

    if torch.cuda.is_available():
        device = int(os.environ.get("LOCAL_RANK", "0") or 0)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, plan.memory_limit_bytes / total), device)


def record_end(plan: TrainPlan, error: BaseException, guard: MemoryGuard | None, trainer: Any) -> None:
    """Write the record from which the run is restarted; nothing if the error is of another kind."""
    try:
        if not oom.is_out_of_memory(error):
            return
        phase = "load" if guard is None else guard.phase
        state = getattr(trainer, "state", None)
        oom.record(plan, error, phase, step=None if state is None else state.global_step + 1)
    except Exception as failure:  # the original error must be shown, whatever happens here
        sys.stderr.write(f"what the memory held cannot be written down: {failure}\n")
