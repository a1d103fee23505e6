"""The record of an out-of-memory: the request, what memory held, and the allocator's snapshot.

`arm` makes torch call us at the moment a request fails, while everything is still in place. Blocks are named after the
tensors in them; one without a name is an activation or a temporary. `record` writes `oom-N.json` for attempt N,
`oom.json` for the latest (each completely or not at all), and a snapshot of limited size that `vramwise replay` reads.
Without CUDA there is only the error message. `recover` decides what to do about it.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.training.guard import oom
from vramwise.training.plan import TrainPlan
from vramwise.units import MIB, parse_size, readable, whole_number
from vramwise.whole_files import put_whole

if TYPE_CHECKING:
    from vramwise.training.guard.callback import MemoryGuard


UNCLAIMED = "activations and temporaries"
LARGEST = 12
_RECENT_EVENTS = 2000


class Claim(NamedTuple):
    """The content of an address: a category for the sums and a label for people."""

    category: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Blocks of the same kind and size."""

    category: str
    label: str
    size_bytes: int  # of one block
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Everything in use by category, the largest kinds of blocks, and the largest of the last requests."""

    categories: Mapping[str, int]
    largest: Sequence[Holding]
    cached_bytes: int  # reserved but unused
    largest_hole_bytes: int
    recent_requests: Sequence[tuple[int, int]]  # size and count, largest first

    def to_json(self) -> dict[str, Any]:
        """Return plain containers."""
        return asdict(self)


def what_it_held(snapshot: Mapping[str, Any], claims: Mapping[int, Claim], device: int = 0) -> Holdings:
    """Summarise a snapshot of one device."""
    categories: Counter[str] = Counter()
    kinds: Counter[tuple[str, str, int]] = Counter()
    cached, hole = 0, 0
    for address, size, busy in _blocks(snapshot, device):
        if not busy:
            cached += size
            hole = max(hole, size)
            continue
        claim = claims.get(address, Claim(UNCLAIMED, ""))
        categories[claim.category] += size
        kinds[(claim.category, claim.label, size)] += 1
    heaviest = sorted(kinds.items(), key=lambda kind: -kind[0][2] * kind[1])[:LARGEST]
    return Holdings(
        categories=dict(categories.most_common()),
        largest=[
            Holding(category=category, label=label, size_bytes=size, count=count)
            for (category, label, size), count in heaviest
        ],
        cached_bytes=cached,
        largest_hole_bytes=hole,
        recent_requests=_recent_requests(snapshot, device),
    )


def _blocks(snapshot: Mapping[str, Any], device: int) -> Iterator[tuple[int, int, bool]]:
    """Yield address, size and whether it is in use for every block.

    Addresses are computed, because older snapshots give blocks none.
    """
    for segment in snapshot.get("segments", ()):
        if segment.get("device", 0) != device:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            yield address, block["size"], block["state"] != "inactive"
            address += block["size"]


def _recent_requests(snapshot: Mapping[str, Any], device: int) -> list[tuple[int, int]]:
    traces = snapshot.get("device_traces") or []
    trace = traces[device] if device < len(traces) else []
    sizes = Counter(entry["size"] for entry in trace[-_RECENT_EVENTS:] if entry.get("action") == "alloc")
    return sorted(sizes.items(), reverse=True)[:LARGEST]


def trimmed(snapshot: Mapping[str, Any], keep_events: int) -> dict[str, Any]:
    """Return the snapshot with only the last events of each device, and without stacks, which are most of its size."""
    traces = [_without_stacks(trace[-keep_events:]) for trace in snapshot.get("device_traces", ())]
    segments = []
    for segment in snapshot.get("segments", ()):
        blocks = _without_stacks(segment["blocks"])
        segments.append({key: value for key, value in segment.items() if key != "frames"} | {"blocks": blocks})
    return {**snapshot, "segments": segments, "device_traces": traces}


def _without_stacks(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in ("frames", "history")} for row in rows]


OOM_FILE = "oom.json"
MAX_SNAPSHOT_BYTES = 32 * MIB
_MAX_ERROR_CHARS = 2000
_REQUEST = re.compile(r"[Tt]ried to allocate ([0-9]{1,15}(?:\.[0-9]{1,9})?) ([KMGT]iB|bytes)")
_MESSAGES = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What was seen when the request failed."""

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    device_free_bytes: int | None
    holdings: Holdings
    snapshot: Mapping[str, Any]


class _Witness:
    """Keeps what it sees when a request fails. One per process, because torch never releases an observer."""

    def __init__(self) -> None:
        self.attached = False
        self.recording = False
        self.moment: _Moment | None = None
        self.look: Callable[[int, int, int], _Moment] | None = None

    def __call__(self, device: int, requested: int, _device_total: int, device_free: int) -> None:
        if self.look is not None:
            with suppress(Exception):  # the error itself must get through, whatever happens here
                self.moment = self.look(device, requested, device_free)


_witness = _Witness()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that GPU memory ran out: torch's own, or that of a library below it."""
    seen: BaseException | None = error
    while seen is not None:
        name = type(seen).__name__
        if name == "OutOfMemoryError" or (isinstance(seen, RuntimeError) and any(m in str(seen) for m in _MESSAGES)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def arm(model: Any, optimizer: Any, *, history_entries: int = 0) -> None:
    """Record what memory holds when a request fails, from now on. Does nothing without CUDA."""
    import torch

    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return
    of_model = weakref.ref(model) if model is not None else lambda: None
    of_optimizer = weakref.ref(optimizer) if optimizer is not None else lambda: None

    def look(device: int, requested: int, device_free: int) -> _Moment:
        snapshot = torch.cuda.memory._snapshot(device)
        return _Moment(
            requested_bytes=requested,
            allocated_bytes=torch.cuda.memory_allocated(device),
            reserved_bytes=torch.cuda.memory_reserved(device),
            device_free_bytes=device_free,
            holdings=what_it_held(snapshot, dict(_claims(of_model(), of_optimizer())), device),
            snapshot=snapshot,
        )

    _witness.moment, _witness.look = None, look
    if not _witness.attached:
        torch._C._cuda_attach_out_of_memory_observer(_witness)
        _witness.attached = True
    if history_entries:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=history_entries)
        _witness.recording = True


def disarm() -> None:
    """Stop watching, and stop recording history if we started it."""
    _witness.look = None
    if _witness.recording:
        import torch

        torch.cuda.memory._record_memory_history(enabled=None)
        _witness.recording = False


def _claims(model: Any, optimizer: Any) -> Iterator[tuple[int, Claim]]:
    """Yield the addresses of everything that has a name: weights, gradients, optimizer state."""
    names: dict[int, str] = {}
    for name, parameter in [*model.named_parameters(), *model.named_buffers()] if model is not None else ():
        names[id(parameter)] = name
        yield _address(parameter), Claim("weights", name)
        if getattr(parameter, "grad", None) is not None:
            yield _address(parameter.grad), Claim("gradients", name)
    while hasattr(optimizer, "optimizer"):  # accelerate wraps the optimizer
        optimizer = optimizer.optimizer
    for parameter, state in getattr(optimizer, "state", {}).items():
        for key, value in state.items() if isinstance(state, dict) else ():
            if hasattr(value, "untyped_storage"):
                yield _address(value), Claim("optimizer", f"{names.get(id(parameter), 'parameter')}: {key}")


def _address(tensor: Any) -> int:
    """Return where a tensor's storage is; for a sharded tensor, the part on this device."""
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.untyped_storage().data_ptr())


def record(plan: TrainPlan, error: BaseException, phase: str, *, step: int | None = None) -> Path:
    """Write `oom.json` and the snapshot into the run's folder. `phase`: where it happened."""
    folder = Path(plan.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    moment = _witness.moment
    facts: dict[str, Any] = {
        "format": 1,
        "attempt": plan.attempt,
        "phase": phase,
        "step": step,
        "micro_batch_size": plan.micro_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "eval_batch_size": plan.eval_batch_size,
        "rank": int(os.environ.get("RANK", "0") or 0),
        "error": str(error)[:_MAX_ERROR_CHARS],
        "requested_bytes": _requested(str(error)),
        "held": None,
        "snapshot": None,
    }
    if moment is not None:
        facts |= {
            "requested_bytes": moment.requested_bytes,
            "allocated_bytes": moment.allocated_bytes,
            "reserved_bytes": moment.reserved_bytes,
            "device_free_bytes": moment.device_free_bytes,
            "held": moment.holdings.to_json(),
            "snapshot": _write_snapshot(folder / f"oom-{plan.attempt}.pickle", moment.snapshot),
        }
    data = json.dumps(facts, indent=2).encode() + b"\n"
    put_whole(record_path(folder, plan.attempt), data)
    put_whole(folder / OOM_FILE, data)  # the latest record, under a fixed name
    return folder / OOM_FILE


def record_path(output_dir: str | Path, attempt: int) -> Path:
    """Return the path of the record of one attempt."""
    return Path(output_dir) / f"oom-{attempt}.json"


def _requested(message: str) -> int | None:
    match = _REQUEST.search(message)
    if match is None:
        return None
    return int(float(match[1])) if match[2] == "bytes" else parse_size(match[1] + match[2])


def _write_snapshot(path: Path, snapshot: Mapping[str, Any]) -> str | None:
    """Write as many of the last events as the size allows; return None if not even the segments fit."""
    events = max((len(trace) for trace in snapshot.get("device_traces", ())), default=0)
    while True:
        data = pickle.dumps(trimmed(snapshot, events), protocol=4)
        if len(data) <= MAX_SNAPSHOT_BYTES:
            put_whole(path, data)
            return path.name
        if events == 0:
            return None
        events //= 2


def read_record(output_dir: str | Path, attempt: int) -> dict[str, Any] | None:
    """Return the record of one attempt, or None if there is none. An unreadable record is an empty mapping."""
    path = record_path(output_dir, attempt)
    try:
        if not path.exists():
            return None
        loaded = parse_json(read_file(path, ceilings.RUN_FILE_BYTES, "a record"))
    except (OSError, ValueError, VramwiseError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def forget_records(output_dir: str | Path, since_attempt: int) -> None:
    """Delete the records of an earlier run in the same folder, for these attempts and later ones."""
    for path in Path(output_dir).glob("oom-*.json"):
        number = whole_number(path.stem.removeprefix("oom-"))
        if number is not None and number >= since_attempt:
            path.unlink(missing_ok=True)


def describe(facts: Mapping[str, Any]) -> list[str]:
    """Describe the record in sentences: the request, what memory held, and the largest holdings."""
    at = "" if facts.get("step") is None else f" at step {facts['step']}"
    asked = facts.get("requested_bytes")
    wanted = f": {readable(asked)} requested" if isinstance(asked, int) else ""
    where = f" on rank {facts['rank']}" if facts.get("rank") else ""
    lines = [f"out of memory in {facts['phase']}{at}{where} (micro-batch {facts['micro_batch_size']}){wanted}"]
    if facts.get("held"):
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):  # an incomplete record
            lines += _describe_holdings(facts, facts["held"])
    return lines


def _describe_holdings(facts: Mapping[str, Any], held: Mapping[str, Any]) -> list[str]:
    lines = []
    lines.append(
        f"in use {readable(facts['allocated_bytes'])}: "
        + ", ".join(f"{name} {readable(size)}" for name, size in held["categories"].items())
    )
    largest = readable(held["largest_hole_bytes"])
    lines.append(f"reserved but idle {readable(held['cached_bytes'])}, in the largest piece {largest}")
    for one in held["largest"][:5]:
        what = f"{one['label']} ({one['category']})" if one["label"] else one["category"]
        lines.append(f"  {one['count']} × {readable(one['size_bytes'])}  {what}")
    return lines


def keep_limit(plan: TrainPlan) -> None:
    """Limit what the allocator may reserve to the plan's limit (`--memory-limit`), if it has one and there is a GPU."""
    if plan.memory_limit_bytes is None:
        return
    import torch

    if torch.cuda.is_available():
        device = int(os.environ.get("LOCAL_RANK", "0") or 0)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, plan.memory_limit_bytes / total), device)


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
