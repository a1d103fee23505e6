"""Memory outside the allocator: the CUDA context with its kernels, and NCCL.

Measured on one H200 (torch 2.11, driver 580, lazy loading): 767 to 779 MiB in a training run, device used less
reserved. Smaller cards are reported lower (about 300 MiB with lazy loading); the measured figure is used for all, which
errs on the safe side. NCCL is reported at 0.5 to 1.6 GiB a communicator set; 1 GiB is taken.
"""

from __future__ import annotations

from vramwise.types import GpuSpec, RunSpec
from vramwise.units import GIB, MIB

CONTEXT_BYTES = 779 * MIB
NCCL_BYTES = 1 * GIB


def outside_bytes(run: RunSpec) -> int:
    """What this run holds on each card beside the allocator."""
    return CONTEXT_BYTES + (NCCL_BYTES if run.batch.gpus > 1 else 0)


def usable_bytes(card: GpuSpec) -> int:
    """What the allocator of a run on one card may reserve."""
    return card.memory_bytes - CONTEXT_BYTES
