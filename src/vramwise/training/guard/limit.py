"""`--memory-limit`: limits what the allocator of this process may reserve."""

from __future__ import annotations

import os

from vramwise.training.plan import TrainPlan


def keep_limit(plan: TrainPlan) -> None:
    """Set the limit of a plan, if it has one and there is a GPU."""
    if plan.memory_limit_bytes is None:
        return
    import torch

    if torch.cuda.is_available():
        device = int(os.environ.get("LOCAL_RANK", "0") or 0)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, plan.memory_limit_bytes / total), device)
