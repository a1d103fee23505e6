"""Memory outside the allocator: the CUDA context with its kernels, and NCCL.

Measured on one H200 (torch 2.11, driver 580, lazy loading): 767 to 779 MiB in a training run (device memory used, minus
reserved). Smaller cards are reported lower (about 300 MiB with lazy loading); the measured figure is used for all,
which errs on the safe side. NCCL is reported at 0.5 to 1.6 GiB per communicator set; 1 GiB is assumed.
"""

from __future__ import annotations

from vramwise.types import GpuSpec, RunSpec
from vramwise.units import GIB, MIB

CONTEXT_BYTES = 779 * MIB
NCCL_BYTES = 1 * GIB


def outside_bytes(run: RunSpec) -> int:
    """Return what this run uses on each card outside the allocator."""
    return CONTEXT_BYTES + (NCCL_BYTES if run.batch.gpus > 1 else 0)


def usable_bytes(card: GpuSpec) -> int:
    """Return what the allocator may reserve on this card."""
    return card.memory_bytes - CONTEXT_BYTES
