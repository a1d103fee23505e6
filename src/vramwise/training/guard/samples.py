"""What the guard measures: a reading of the allocator, and a sample of it at a step and phase of the run.

Data only: `backend` takes readings, `watch` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
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
