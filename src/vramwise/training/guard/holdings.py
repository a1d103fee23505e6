"""What memory held: the blocks of an allocator snapshot, named after the tensors in them.

Pure: works on torch's snapshot as plain containers and on a map from address to content. A block without a name is an
activation or a temporary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

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
