"""Recordings for tests: the ones in tests/data/traces, more beside the checkout if they are there, and home-made ones."""

import gzip
import json
import pickle
from pathlib import Path

from vramwise.recordings.reader import parse_recording

DATA = Path(__file__).parent.parent / "data" / "traces"
SHARED = Path(__file__).parents[3] / "shared" / "traces"

FACTS = json.loads((DATA / "stress-facts.json").read_text(encoding="utf-8"))
STRESS = sorted(FACTS)


def stress_path(case):
    return DATA / f"stress-{case}.pickle.gz"


def trace_paths():
    """Every trace file at hand; the two in the tree stand for those beside it."""
    shared = sorted(SHARED.glob("*.json.gz"))
    return shared or sorted(DATA.glob("*.json.gz"))


def load_trace(path):
    with gzip.open(path) as file:
        return json.load(file)


def entry(action, address, size, stream=0, frames=None):
    fields = {"action": action, "addr": address, "size": size, "stream": stream, "time_us": 0}
    return fields if frames is None else {**fields, "frames": frames}


def block(address, size, requested=None, state="active_allocated"):
    return {"address": address, "size": size, "requested_size": requested or size, "state": state, "frames": []}


def segment(address, size, blocks, kind="large", expandable=False, stream=0, device=0):
    """A segment of a snapshot; what the blocks leave is free."""
    filled, at = [], address
    for used in sorted(blocks, key=lambda one: one["address"]):
        if used["address"] > at:
            filled.append(block(at, used["address"] - at, state="inactive"))
        filled.append(used)
        at = used["address"] + used["size"]
    if at < address + size:
        filled.append(block(at, address + size - at, state="inactive"))
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "stream": stream,
        "segment_type": kind,
        "is_expandable": expandable,
        "frames": [],
        "blocks": filled,
    }


def snapshot(entries, segments, conf=""):
    return {
        "segments": segments,
        "device_traces": [entries],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": conf},
        "external_annotations": [],
    }


def recording(entries, segments, conf=""):
    return parse_recording(pickle.dumps(snapshot(entries, segments, conf)), "test")
