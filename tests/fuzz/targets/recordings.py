"""Recordings of torch's allocator: snapshot pickles, damaged and hostile, and traces → `replay`, `diagnose`."""

import gzip
import json
import pickle

from tests.fuzz.bench import Failure
from tests.fuzz.mutate import HOSTILE_TEXT, ODD_NUMBERS, bytes_changed, nested, odd_value, value_changed
from tests.fuzz.seeds import snapshots, traces
from tests.fuzz.targets import add

_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "x",
)
_SETTINGS = (
    "expandable_segments:True",
    "max_split_size_mb:20",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.8",
)


def _made_entries(rng):
    """Events over few addresses, so that they meet."""
    entries = []
    for _ in range(rng.choice((1, 5, 40, 200))):
        entry = {
            "action": rng.choice(_ACTIONS) if rng.random() < 0.5 else rng.choice(_ACTIONS[:5]),
            "addr": rng.randrange(8) * 2**21 + 2**40 if rng.random() < 0.9 else rng.choice(ODD_NUMBERS),
            "size": rng.choice((512, 2**20, 2**21, 20 * 2**20)) if rng.random() < 0.8 else rng.choice(ODD_NUMBERS),
            "stream": rng.choice((0, 0, 0, 1, -1)),
            "frames": rng.choice(
                ([], [{"filename": rng.choice(HOSTILE_TEXT), "name": "f", "line": 1}], odd_value(rng))
            ),
        }
        entries.append(entry)
    return entries


def _made_snapshot(rng):
    return {
        "device_traces": [_made_entries(rng) for _ in range(rng.choice((1, 1, 2)))],
        "segments": [],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": rng.choice((*_SETTINGS, *HOSTILE_TEXT))},
    }


def _shared_lists(rng):
    """A few hundred bytes that stand for more items than there are atoms."""
    value = [0] * 10
    for _ in range(rng.choice((3, 8, 20, 60))):
        value = [value] * 10
    return value


class _Runs:
    """Pickles as a call: reading it with Python's own unpickler would make a folder."""

    def __reduce__(self):
        import os

        return os.mkdir, ("ran",)


def _hostile(rng):
    """Structured hostility: somewhere in a good snapshot, something no recording holds."""
    bad = rng.choice(
        (
            _shared_lists(rng),
            nested(rng.choice((50, 300))),
            _Runs(),
            odd_value(rng),
            float("inf"),
            2**47,
            10**40,
            {1: 2},
            b"x",
            (1, 2),
        )
    )
    snapshot = dict(rng.choice(snapshots()))
    where = rng.choice(
        ("device_traces", "segments", "allocator_settings", "frames", "addr", "size", "action", "block", "all", "key")
    )
    if where in snapshot:
        snapshot[where] = rng.choice((bad, [bad], [[bad]], {"PYTORCH_CUDA_ALLOC_CONF": bad, "max_split_size": bad}))
    elif where == "block":
        segment = {**snapshot["segments"][0]} if snapshot["segments"] else {"blocks": [], "address": 0}
        segment[rng.choice(("blocks", "address", "total_size", "stream", "device", "segment_type"))] = bad
        snapshot["segments"] = [segment]
    elif where == "all":
        return bad
    elif where == "key":
        snapshot["x"] = bad
    else:
        entries = [dict(entry) for entry in snapshot["device_traces"][0]] or [{"action": "alloc"}]
        rng.choice(entries)[where] = bad
        snapshot["device_traces"] = [entries]
    return snapshot


def _pickled(rng, value):
    return pickle.dumps(value, protocol=rng.choice((4, 4, 4, 2, 0, 5)))


def _snapshot(rng):
    kind = rng.random()
    if kind < 0.3:
        data = _pickled(rng, _made_snapshot(rng))
    elif kind < 0.55:
        data = _pickled(rng, value_changed(rng, rng.choice(snapshots())))
    elif kind < 0.8:
        data = _pickled(rng, _hostile(rng))
    else:
        return bytes_changed(rng, _pickled(rng, rng.choice((rng.choice(snapshots()), _made_snapshot(rng)))))
    return gzip.compress(data, 1) if rng.random() < 0.05 else data


def _trace(rng):
    kind = rng.random()
    if kind < 0.4:
        events = [[one["action"], one["addr"], one["size"], one["stream"]] for one in _made_entries(rng)]
        trace = {"events": events, "settings": {"PYTORCH_CUDA_ALLOC_CONF": rng.choice(_SETTINGS)}, "torch": "2.8"}
        return json.dumps(trace).encode()
    data = json.dumps(value_changed(rng, rng.choice(traces()))).encode()
    return bytes_changed(rng, data) if kind > 0.8 else data


def _run(command, *words, how="command"):
    def run(bench, data):
        name = bench.write("recording", data)
        getattr(bench, how)(command, *words, name)
        if (bench.folder / "ran").exists():
            (bench.folder / "ran").rmdir()
            raise Failure("a pickle was run", command)

    return run


_CHECKS = {
    "replay": _run("replay"),
    "replay-json": _run("replay", "--format", "json", how="command_json"),
    "replay-other": _run("replay", "--alloc-conf", "expandable_segments:True", "--memory-limit", "4GB"),
    "replay-plain": _run("replay", "--alloc-conf", "", "--torch", "2.6"),
    "diagnose": _run("diagnose", "--snapshot"),
    "diagnose-json": _run("diagnose", "--format", "json", "--snapshot", how="command_json"),
}


def _page(bench, data):
    bench.command_html("diagnose", "--snapshot", bench.write("recording", data))


add(
    name="snapshot",
    about="snapshot pickles, damaged and hostile → `replay`, `diagnose --snapshot`, its page",
    extension="pickle",
    make=_snapshot,
    checks={**_CHECKS, "page": _page},
)
add(
    name="trace",
    about="JSON traces → `replay`, `diagnose --snapshot`, its page",
    extension="json",
    make=_trace,
    checks={**_CHECKS, "page": _page},
)
