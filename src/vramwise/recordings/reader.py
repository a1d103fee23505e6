"""Read what torch recorded: a snapshot pickle (`torch.cuda.memory._dump_snapshot`) or a JSON trace, gzipped or not.

Both are untrusted: sizes are bounded, every value is checked, and the pickle goes through `unpickle`, which runs no
code. Any flaw raises VramwiseError with one sentence.

A trace file is `{"events": [[action, address, size, stream], …], "settings": {…}, "final_segments": [[address,
total_size, type, stream, expandable], …]}` with torch's names for actions; "torch" (a version) is optional.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vramwise.allocator.settings import TorchVersion, first_version_with
from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file, unzipped
from vramwise.limits.json_values import OverBudget
from vramwise.recordings.recorded import settings_text
from vramwise.recordings.recording import (
    TOO_LARGE,
    RecordedBlock,
    RecordedSegment,
    Recording,
    collect_events,
)
from vramwise.recordings.unpickle import load_plain
from vramwise.units import mib

_BUSY_STATES = {"active_allocated": False, "active_pending_free": True}


def read_recording(
    path: str | Path, device: int | None = None, most_events: int = ceilings.REPLAYED_EVENTS
) -> Recording:
    """Read a snapshot or trace file. `device` defaults to the one with the most events.

    Raises VramwiseError if it cannot be read.
    """
    data = read_file(path, ceilings.RECORDING_BYTES, "a recording")
    return parse_recording(data, str(path), device, most_events)


def parse_recording(
    data: bytes, name: str, device: int | None = None, most_events: int = ceilings.REPLAYED_EVENTS
) -> Recording:
    """Return the recording in a file's bytes; `name` is for messages.

    If there are more than `most_events` events, the last ones are used. Raises VramwiseError if it is not a recording.
    """
    try:
        data = unzipped(data, ceilings.RECORDING_BYTES, "a recording")
        if data[:64].lstrip()[:1] == b"{":
            return _from_trace(_load_json(data), name, device, most_events)
        return _from_snapshot(load_plain(data), name, device, most_events)
    except VramwiseError as error:
        raise VramwiseError(f"{name}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # None of these messages quotes a value of the file: its text could exceed memory.
        raise VramwiseError(f"{name}: not a recording of torch's allocator ({error!r})") from None


def _load_json(data: bytes) -> dict[str, Any]:
    if len(data) > ceilings.DATA_BYTES:
        raise VramwiseError(f"the JSON is larger than {mib(ceilings.DATA_BYTES)}: record a shorter part of the run")
    try:
        loaded = parse_json(data)
    except OverBudget as error:
        raise VramwiseError(f"{error}: record a shorter part of the run") from None
    except ValueError as error:
        raise VramwiseError(f"not valid JSON: {error}") from None
    return loaded if isinstance(loaded, dict) else {}


def _from_trace(trace: dict[str, Any], name: str, device: int | None, most_events: int) -> Recording:
    if not isinstance(trace.get("events"), list):
        raise VramwiseError('the JSON has no list of "events": not a trace of torch\'s allocator')
    if device not in (None, 0):
        raise VramwiseError(f"a trace file contains only device 0, not device {device}")
    events = collect_events(trace["events"], most_events)
    segments = []
    for address, size, kind, stream, expandable in _few(trace.get("final_segments", ()), ceilings.RECORDED_SEGMENTS):
        segments.append(_segment(address, size, kind, stream, expandable, None))
    if not events.count:
        raise VramwiseError('the list of "events" is empty: there is nothing to replay')
    return Recording(
        name=name,
        device=0,
        events=events,
        segments=segments,
        settings=settings_text(trace.get("settings", {})),
        torch=_version(trace.get("torch")),
    )


def _from_snapshot(snapshot: Any, name: str, device: int | None, most_events: int) -> Recording:
    if not isinstance(snapshot, dict):
        raise VramwiseError(f"not a torch snapshot: the pickle holds a {type(snapshot).__name__}, not a dict")
    traces = snapshot.get("device_traces")
    if not isinstance(traces, list) or not any(traces):
        if snapshot.get("host_traces"):
            raise VramwiseError(
                "it contains only pinned host memory: call torch.cuda.memory._record_memory_history() without "
                "record_cuda=False"
            )
        raise VramwiseError(
            "it contains no allocation history: call torch.cuda.memory._record_memory_history() before the run, and "
            "dump the snapshot afterwards"
        )
    recorded = [number for number, trace in enumerate(traces) if trace]
    if device is None:
        device = max(recorded, key=lambda number: len(traces[number]))
    if device not in recorded:
        raise VramwiseError(f"nothing was recorded on device {device}, only on {_numbers(recorded)}")
    entries = traces[device]
    events = collect_events(entries, most_events, _row)
    found = _few([one for one in snapshot["segments"] if one.get("device", 0) == device], ceilings.RECORDED_SEGMENTS)
    if sum(len(segment["blocks"]) for segment in found) > ceilings.RECORDED_BLOCKS:
        raise VramwiseError(f"it has more than {ceilings.RECORDED_BLOCKS:,} blocks at its end: too many for a real run")
    settings = settings_text(snapshot.get("allocator_settings", {}))
    return Recording(
        name=name,
        device=device,
        events=events,
        segments=[_snapshot_segment(segment) for segment in found],
        settings=settings,
        torch=_version_by_fields(snapshot, entries, settings),
        entries=entries,
    )


def _version_by_fields(snapshot: dict[str, Any], entries: list[Any], settings: str) -> TorchVersion | None:
    """Return the oldest torch that writes such a snapshot, if 2.13 or newer; snapshots do not name their version.

    Older versions stay unknown: their allocators treat any recording alike, except for options that depend on the
    version.
    """
    oldest = first_version_with(settings)
    if "host_segments" in snapshot or "host_traces" in snapshot:
        oldest = max(oldest, (2, 14))
    if any(entry.get("internal_metadata") for entry in entries):
        oldest = max(oldest, (2, 15))
    return oldest if oldest >= (2, 13) else None


def _few(segments: Any, most: int) -> Any:
    if len(segments) > most:
        raise VramwiseError(f"it has more than {most:,} segments at its end: too many for a real card")
    return segments


def _row(entry: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    return entry["action"], entry.get("addr", 0), entry.get("size", 0), entry.get("stream", 0)


def _snapshot_segment(segment: dict[str, Any]) -> RecordedSegment:
    blocks = []
    start, total = _size(segment["address"], "a segment at"), _size(segment["total_size"], "a segment of size")
    address = start
    for block in segment["blocks"]:
        size, waiting = _size(block["size"], "a block of size"), _BUSY_STATES.get(block["state"])
        if waiting is not None:
            requested = _size(block.get("requested_size", size), "a block for a request of")
            blocks.append(RecordedBlock(address, size, requested, waiting))
        address += size
    if address != start + total:
        raise ValueError("blocks do not fill their segment")
    return _segment(
        start,
        total,
        segment["segment_type"],
        segment["stream"],
        segment.get("is_expandable", False),
        tuple(blocks),
    )


def _size(value: Any, what: str) -> int:
    """Return a number of bytes or an address, after checking type and range."""
    if type(value) is not int:
        raise ValueError(f"{what} something that is not a whole number but of type {type(value).__name__}")
    if not 0 <= value < TOO_LARGE:
        shown = str(value) if abs(value) < 1 << 64 else "more than 2**64"
        raise ValueError(f"{what} {shown}, which no card has")
    return value


def _segment(
    address: Any, size: Any, kind: Any, stream: Any, expandable: Any, blocks: tuple[RecordedBlock, ...] | None
) -> RecordedSegment:
    end = _size(address, "a segment at") + _size(size, "a segment of size")
    if end >= TOO_LARGE or not size or type(stream) is not int:
        raise ValueError("a segment without usable address, size and stream")
    return RecordedSegment(address, size, kind == "small", stream, bool(expandable), blocks)


def _version(text: Any) -> TorchVersion | None:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else None


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:16])) + (" and others" if len(numbers) > 16 else "")
