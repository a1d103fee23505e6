"""The end of a training that another trainer runs: an out-of-memory is recorded before it is shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from vramwise.training.guard import oom

if TYPE_CHECKING:
    from vramwise.training.guard.callback import MemoryGuard
    from vramwise.training.plan import TrainPlan


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
