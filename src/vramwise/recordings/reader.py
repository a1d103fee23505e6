"""Read what torch recorded: a snapshot pickle (`torch.cuda.memory._dump_snapshot`) or a trace in JSON, gzipped or not.

Both come from elsewhere and are trusted in nothing: sizes are bounded, every value is checked, and the pickle goes
through `unpickle`, which lets no code in. Whatever is wrong is a VramwiseError with one sentence.

A trace file is `{"events": [[action, address, size, stream], …], "settings": {…}, "final_segments": [[address,
total_size, type, stream, expandable], …]}` with torch's names for actions; "torch" (a version) is read if it is there.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

from vramwise.allocator.settings import TorchVersion
from vramwise.errors import VramwiseError
from vramwise.recordings.recording import TOO_LARGE, RecordedBlock, RecordedSegment, Recording, collect_events
from vramwise.recordings.unpickle import load_plain
from vramwise.units import MIB, mib

MAX_FILE_BYTES = 256 * MIB
MAX_JSON_BYTES = 128 * MIB

_BUSY_STATES = {"active_allocated": False, "active_pending_free": True}


def read_recording(path: str | Path, device: int | None = None) -> Recording:
    """Read a snapshot or trace file. Of several devices: the one asked for, or the one with the most events."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise VramwiseError(f"{path} is larger than {mib(MAX_FILE_BYTES)}: too large for a recording")
        data = path.read_bytes()
    except OSError as error:
        raise VramwiseError(f"cannot read {path}: {error.strerror or error}") from None
    return parse_recording(data, str(path), device)


def parse_recording(data: bytes, name: str, device: int | None = None) -> Recording:
    """Make a recording of a file's bytes; `name` is for messages."""
    if data[:2] == b"\x1f\x8b":
        data = _decompress(data, name)
    try:
        if data.lstrip()[:1] == b"{":
            return _from_trace(_load_json(data, name), name, device)
        return _from_snapshot(load_plain(data), name, device)
    except VramwiseError as error:
        raise VramwiseError(f"{name}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise VramwiseError(f"{name}: not laid out like a recording of torch's allocator ({error!r})") from None


def _decompress(data: bytes, name: str) -> bytes:
    try:
        machine = zlib.decompressobj(wbits=31)
        text = machine.decompress(data, MAX_FILE_BYTES)
    except zlib.error as error:
        raise VramwiseError(f"{name}: damaged gzip data ({error})") from None
    if machine.unconsumed_tail:
        raise VramwiseError(f"{name} unpacks to more than {mib(MAX_FILE_BYTES)}: too large for a recording")
    if not machine.eof:
        raise VramwiseError(f"{name}: the gzip data is cut off")
    return text


def _load_json(data: bytes, name: str) -> dict[str, Any]:
    if len(data) > MAX_JSON_BYTES:
        raise VramwiseError(f"the JSON is larger than {mib(MAX_JSON_BYTES)}: too large for a recording")
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise VramwiseError(f"not readable as JSON: {reason}") from None
    return loaded if isinstance(loaded, dict) else {}


def _from_trace(trace: dict[str, Any], name: str, device: int | None) -> Recording:
    if not isinstance(trace.get("events"), list):
        raise VramwiseError('the JSON has no list of "events": not a trace of torch\'s allocator')
    if device not in (None, 0):
        raise VramwiseError(f"a trace file holds one device, number 0; there is no device {device}")
    events = collect_events(trace["events"])
    segments = []
    for address, size, kind, stream, expandable in trace.get("final_segments", ()):
        segments.append(_segment(address, size, kind, stream, expandable, None))
    if not events.count:
        raise VramwiseError('the list of "events" is empty: there is nothing to replay')
    return Recording(
        name=name,
        device=0,
        events=events,
        segments=segments,
        settings=_settings_text(trace.get("settings", {})),
        torch=_version(trace.get("torch")),
    )


def _from_snapshot(snapshot: Any, name: str, device: int | None) -> Recording:
    if not isinstance(snapshot, dict):
        raise VramwiseError(f"not a torch snapshot: the pickle holds a {type(snapshot).__name__}, not a dict")
    traces = snapshot.get("device_traces")
    if not isinstance(traces, list) or not any(traces):
        raise VramwiseError(
            "it holds no history of allocations: call torch.cuda.memory._record_memory_history() before the run, "
            "and dump the snapshot after it"
        )
    recorded = [number for number, trace in enumerate(traces) if trace]
    if device is None:
        device = max(recorded, key=lambda number: len(traces[number]))
    if device not in recorded:
        raise VramwiseError(f"nothing was recorded on device {device}, only on {', '.join(map(str, recorded))}")
    entries = traces[device]
    events = collect_events(
        (entry["action"], entry.get("addr", 0), entry.get("size", 0), entry.get("stream", 0)) for entry in entries
    )
    return Recording(
        name=name,
        device=device,
        events=events,
        segments=[_snapshot_segment(segment) for segment in snapshot["segments"] if segment.get("device", 0) == device],
        settings=_settings_text(snapshot.get("allocator_settings", {})),
        torch=None,
        entries=entries,
    )


def _snapshot_segment(segment: dict[str, Any]) -> RecordedSegment:
    blocks = []
    address = segment["address"]
    for block in segment["blocks"]:
        size, waiting = block["size"], _BUSY_STATES.get(block["state"])
        if type(size) is not int or size < 0:
            raise ValueError(f"a block of size {size!r}")
        if waiting is not None:
            blocks.append(RecordedBlock(address, size, int(block.get("requested_size", size)), waiting))
        address += size
    if address != segment["address"] + segment["total_size"]:
        raise ValueError("blocks do not fill their segment")
    return _segment(
        segment["address"],
        segment["total_size"],
        segment["segment_type"],
        segment["stream"],
        segment.get("is_expandable", False),
        tuple(blocks),
    )


def _segment(
    address: Any, size: Any, kind: Any, stream: Any, expandable: Any, blocks: tuple[RecordedBlock, ...] | None
) -> RecordedSegment:
    if not (type(address) is type(size) is type(stream) is int and 0 <= address < TOO_LARGE and 0 < size < TOO_LARGE):
        raise ValueError("a segment without usable address, size and stream")
    return RecordedSegment(address, size, kind == "small", stream, bool(expandable), blocks)


def _settings_text(settings: Any) -> str:
    """The settings string a recording ran under; from the single settings where the string itself is not there."""
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if isinstance(settings.get(variable), str) and settings[variable]:
            return str(settings[variable])
    options = []
    if settings.get("expandable_segments"):
        options.append("expandable_segments:True")
    if settings.get("max_split_size", -1) > 0:
        options.append(f"max_split_size_mb:{settings['max_split_size'] // MIB}")
    if settings.get("garbage_collection_threshold", 0) > 0:
        options.append(f"garbage_collection_threshold:{settings['garbage_collection_threshold']}")
    divisions = settings.get("roundup_power2_divisions") or {}
    if any(divisions.values()):
        options.append(
            "roundup_power2_divisions:[" + ",".join(f"{key}:{value}" for key, value in divisions.items()) + "]"
        )
    return ",".join(options)


def _version(text: Any) -> TorchVersion | None:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else None
