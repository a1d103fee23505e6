"""What the guard measures: a reading of the allocator, and a sample of it at a step and phase of the run.

Readings come from the counters of torch's CUDA allocator, in one cheap call. Without CUDA there is no backend, and the
guard does nothing. `watch` judges the samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

# Measured phases are coarser than predicted ones: a callback sees the end of "train" (data, forward, backward, clip),
# of "optimizer" (with the zeroing of gradients), of an evaluation and of a save.
MeasuredPhase = Literal["load", "train", "optimizer", "eval", "save"]
PREDICTED_PHASES: Mapping[str, frozenset[str]] = {
    "load": frozenset({"load"}),
    "train": frozenset({"data", "forward", "loss", "backward", "clip", "reference", "generate"}),
    "optimizer": frozenset({"optimizer", "log"}),
    "eval": frozenset({"eval"}),
    "save": frozenset({"save"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The allocator at one moment.

    Peaks count from the last reset of the counters; `device_free_bytes` may be unknown.
    """

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    retries: int
    device_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A reading at the end of a phase; `width` is the widest batch of that phase in tokens per row, if known."""

    step: int
    phase: MeasuredPhase
    reading: Reading
    width: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a flat mapping for one line of a log."""
        return {"step": self.step, "phase": self.phase, "width": self.width, **asdict(self.reading)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Sample:
        """Return the sample of such a mapping; unknown keys are ignored."""
        counted = {one.name: int(record[one.name]) for one in fields(Reading) if one.name != "device_free_bytes"}
        reading = Reading(**counted, device_free_bytes=record.get("device_free_bytes"))
        return cls(step=int(record["step"]), phase=record["phase"], reading=reading, width=record.get("width"))


# The driver's own figure (cudaMemGetInfo) takes a lock and can cost a millisecond: asked at most once in this time.
_FREE_EVERY_SECONDS = 5.0


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


def find_backend() -> CudaBackend | None:
    """Return the device that this process trains on, or None without CUDA. Creates no CUDA context itself."""
    import torch

    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    return CudaBackend(torch)
