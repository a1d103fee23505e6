"""Reads the counters of torch's CUDA allocator in one cheap call.

Knows nothing about steps or limits. Without CUDA there is no backend, and the guard does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from vramwise.training.guard.samples import Reading

# The driver's own figure (cudaMemGetInfo) takes a lock and can cost a millisecond: asked at most once in this time.
_FREE_EVERY_SECONDS = 5.0


class MemoryBackend(Protocol):
    """The device interface that the guard needs."""

    @property
    def name(self) -> str:
        """The device for display: `cuda:0 NVIDIA H200`."""

    @property
    def device_bytes(self) -> int | None:
        """The total memory of the device, or None if unknown."""

    def read(self, *, fresh: bool = False) -> Reading:
        """Return the current counters. `fresh`: ask the driver for free memory even if that was done recently."""

    def reset_peaks(self) -> None:
        """Reset the peaks to what is in use now."""


class CudaBackend:
    """The current CUDA (or ROCm) device of this process."""

    def __init__(self, torch: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._cuda = torch.cuda
        self._device = torch.cuda.current_device()
        self._clock = clock
        self._free: int | None = None
        self._free_asked = float("-inf")
        properties = torch.cuda.get_device_properties(self._device)
        self._name = f"cuda:{self._device} {properties.name}"
        self._total = int(properties.total_memory)

    @property
    def name(self) -> str:
        """Device number and name of the card."""
        return self._name

    @property
    def device_bytes(self) -> int | None:
        """The card's memory as the driver gives it."""
        return self._total

    def read(self, *, fresh: bool = False) -> Reading:
        """Read torch's statistics in one call, without waiting for the device."""
        stats = self._cuda.memory_stats_as_nested_dict(self._device)
        allocated = stats.get("allocated_bytes", {}).get("all", {})
        reserved = stats.get("reserved_bytes", {}).get("all", {})
        return Reading(
            allocated_bytes=allocated.get("current", 0),
            reserved_bytes=reserved.get("current", 0),
            peak_allocated_bytes=allocated.get("peak", 0),
            peak_reserved_bytes=reserved.get("peak", 0),
            retries=stats.get("num_alloc_retries", 0),
            device_free_bytes=self._device_free(fresh),
        )

    def _device_free(self, fresh: bool) -> int | None:
        now = self._clock()
        if fresh or now - self._free_asked >= _FREE_EVERY_SECONDS:
            self._free_asked = now
            self._free = int(self._cuda.mem_get_info(self._device)[0])
        return self._free

    def reset_peaks(self) -> None:
        """Reset torch's peak counters of this device."""
        self._cuda.reset_peak_memory_stats(self._device)


def find_backend() -> MemoryBackend | None:
    """Return the device that this process trains on, or None without CUDA. Creates no CUDA context itself."""
    import torch

    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    return CudaBackend(torch)
