"""Validates lines of a memory log; lines damaged by a kill or a full disk are skipped.

Each kind of line has required fields: if they are missing or of another type, the line does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.training.guard.samples import PREDICTED_PHASES

_MOST = 2**63  # for bytes and steps: larger values are not measurements
_SIZES = ("allocated_bytes", "reserved_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "retries")
_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")


def usable(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record as the report reads it, or None if it is unusable. Unknown kinds pass."""
    kind = record["kind"]
    if kind == "start":
        return _start(record)
    if kind == "sample":
        return record if _is_sample(record) else None
    if kind == "warning":
        said = isinstance(record.get("rule"), str) and isinstance(record.get("message"), str)
        return record if said and _is_number(record.get("step")) else None
    if kind == "decision":
        return record if isinstance(record.get("advice") or [], list) else None
    return record


def _start(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not isinstance(record.get("device") or "", str):
        return None
    numbers = (record.get(name) for name in ("device_bytes", "max_steps", "step"))
    if not all(value is None or _is_number(value) for value in numbers):
        return None
    return {**record, "step": record.get("step") or 0, "predicted": _predicted(record.get("predicted"))}


def _predicted(written: Any) -> dict[str, Any] | None:
    """Return the prediction, or None if its peaks are missing; incomplete phases are left out."""
    if not _has_peaks(written):
        return None
    phases = written.get("phases")
    listed = phases if isinstance(phases, list) else []
    return {**written, "phases": [one for one in listed if _has_peaks(one) and isinstance(one.get("phase"), str)]}


def _has_peaks(written: Any) -> bool:
    return isinstance(written, dict) and all(_is_number(written.get(name)) for name in _PEAKS)


def _is_sample(record: Mapping[str, Any]) -> bool:
    phase = record.get("phase")
    known = isinstance(phase, str) and phase in PREDICTED_PHASES
    return known and all(_is_number(record.get(name)) for name in (*_SIZES, "step"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
