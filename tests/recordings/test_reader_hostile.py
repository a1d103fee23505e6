"""Recordings that mean harm: any value in any place is one short sentence or a result, in little memory and time."""

import copy
import math
import os
import pickle
import sys
import tracemalloc
from pathlib import Path

import pytest
from made_recordings import block, entry, segment, snapshot

from installed import NOT_THIS_SYSTEM
from vramwise.cli.replay import as_json, as_text
from vramwise.diagnosis.drawing import draw
from vramwise.diagnosis.reading import read_all
from vramwise.errors import VramwiseError
from vramwise.limits import ceilings
from vramwise.recordings import unpickle
from vramwise.recordings.reader import parse_recording, read_recording
from vramwise.recordings.replay import replay
from vramwise.render.diagnosis_html import diagnosis_page
from vramwise.render.diagnosis_json import render_json
from vramwise.render.diagnosis_text import render_diagnosis
from vramwise.render.json_text import json_text
from vramwise.render.outward import outward
from vramwise.units import MIB

BASE = 0x7F0000000000
FRAMES = [{"filename": "/site-packages/transformers/modeling_llama.py", "name": "forward", "line": 7}]
SNAPSHOT = snapshot(
    [
        entry("segment_alloc", BASE, 20 * MIB, frames=FRAMES),
        entry("alloc", BASE, 4 * MIB, frames=FRAMES),
        entry("free_requested", BASE, 4 * MIB, frames=FRAMES),
        entry("free_completed", BASE, 4 * MIB, frames=FRAMES),
        entry("alloc", BASE, 3 * MIB, frames=FRAMES),
        {**entry("oom", 0, 80 * MIB, frames=FRAMES), "device_free": 5 * MIB},
    ],
    [segment(BASE, 20 * MIB, [block(BASE, 3 * MIB)])],
)
SNAPSHOT["allocator_settings"] = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "expandable_segments": False,
    "max_split_size": 64 * MIB,
    "garbage_collection_threshold": 0.6,
    "roundup_power2_divisions": {"1": 2, "2": 0},
}


def nested(levels, width=2):
    """A few bytes in a pickle; its text would have `width ** levels` parts."""
    value = ["x"]
    for _ in range(levels):
        value = [value] * width
    return value


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


HOSTILE = {
    "shared": nested(18),
    "deep": deep(5000),
    "inf": math.inf,
    "nan": math.nan,
    "float": 1e300,
    "true": True,
    "negative": -(2**62),
    "huge": 2**62,
    "none": None,
    "text": "<script>alert(1)</script>" * 10_000,
    "half a character": "\ud800",
    "list": [],
    "mapping": {"a": 1},
}


def places(value, path=()):
    """Every place of a snapshot."""
    yield path
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def put(path, value):
    changed = copy.deepcopy(SNAPSHOT)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def outputs(path):
    """Everything that can be made of a recording, as it leaves the program."""
    result = replay(read_recording(path))
    yield written(as_text(result))
    yield json_text(as_json(result))
    reading = read_all(None, snapshot=str(path))
    yield written(render_diagnosis(reading.diagnosis))
    yield render_json(reading.diagnosis)
    yield diagnosis_page(reading.diagnosis, draw(reading))


def written(lines):
    return "\n".join(outward(line) for line in lines)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", list(places(SNAPSHOT))[1:], ids=str)
def test_any_value_in_any_place(path, tmp_path):
    file = tmp_path / "x.pickle"
    for name, value in HOSTILE.items():
        file.write_bytes(_pickled(put(path, value)))
        refused = ""
        try:
            for text in outputs(file):
                text.encode("utf-8")
                assert "<script>alert" not in text or not text.startswith("<!"), name
        except VramwiseError as error:
            refused = str(error)
        refused.encode("utf-8")
        assert len(refused) < 500, name
        assert "\n" not in refused


def _pickled(value):
    """Python's own pickler is recursive; whoever wrote the file need not have used it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        return pickle._dumps(value, protocol=4)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    "path",
    [
        ("device_traces", 0, 4, "frames"),
        ("device_traces", 0, 5, "frames", 0, "filename"),
        ("segments", 0, "blocks", 0, "size"),
        ("segments", 0, "address"),
        ("allocator_settings", "roundup_power2_divisions", "1"),
        ("allocator_settings", "garbage_collection_threshold"),
    ],
    ids=str,
)
def test_shared_lists_are_never_written_out(path, tmp_path):
    file = tmp_path / "x.pickle"
    file.write_bytes(pickle._dumps(put(path, nested(21))))
    assert file.stat().st_size < 10_000
    tracemalloc.start()
    try:
        list(outputs(file))
    except VramwiseError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10 * MIB


def test_equal_shared_lists_are_never_compared():
    # Equal and not the same: comparing them would visit 2 ** 60 pairs.
    changed = put(("segments", 0, "address"), nested(60))
    changed["segments"][0].update(total_size=[], blocks=[])
    changed["segments"].append({**changed["segments"][0], "address": nested(60), "device": nested(60)})
    with pytest.raises(VramwiseError, match="a segment at something that is not a whole number"):
        parse_recording(pickle._dumps(changed), "x")


class TestWhatIsNoFile:
    @pytest.mark.skipif(not Path("/dev/zero").exists(), reason=NOT_THIS_SYSTEM)
    @pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
    def test_a_device(self, device):
        with pytest.raises(VramwiseError, match="is a device or a pipe: save"):
            read_recording(device)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason=NOT_THIS_SYSTEM)
    def test_a_pipe_that_nobody_writes_to(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(VramwiseError, match="is a device or a pipe: save"):
            read_recording(tmp_path / "pipe")

    def test_a_folder(self, tmp_path):
        with pytest.raises(VramwiseError, match=r"cannot be read|is a device"):
            read_recording(tmp_path)

    def test_a_name_that_no_file_has(self):
        with pytest.raises(VramwiseError, match="cannot be read"):
            read_recording("a\0b")


class TestRepetition:
    def test_of_an_entry_that_is_repeated_by_reference_the_last_are_taken(self):
        repeated = put(("device_traces", 0), [SNAPSHOT["device_traces"][0][1]] * 1001)
        events = parse_recording(pickle._dumps(repeated), "x", most_events=1000).events
        assert (events.count, events.left_out, len(events.rows), events.sources[0]) == (1001, 1, 1000, 1)

    def test_steps_of_a_pickle_are_counted(self, monkeypatch):
        monkeypatch.setattr(ceilings, "MEMORY_BYTES", 30_000)
        with pytest.raises(VramwiseError, match="record a shorter part of the run"):
            unpickle.load_plain(pickle._dumps([None] * 2000))

    def test_values_of_a_pickle_are_counted(self, monkeypatch):
        many = pickle.dumps([str(number) for number in range(1000)], protocol=4)
        monkeypatch.setattr(ceilings, "MEMORY_BYTES", 200_000)
        assert len(unpickle.load_plain(many)) == 1000
        monkeypatch.setattr(ceilings, "MEMORY_BYTES", 100_000)
        with pytest.raises(VramwiseError, match="values would take more than"):
            unpickle.load_plain(many)

    def test_more_of_them_than_are_matched_at_once(self):
        many = [None] * (unpickle._OPCODES_AT_ONCE + 10)
        assert unpickle.load_plain(pickle._dumps(many, protocol=4)) == many

    def test_a_trace_of_empty_lists(self, monkeypatch):
        monkeypatch.setattr(ceilings, "MEMORY_BYTES", 100_000)
        with pytest.raises(VramwiseError, match="values would take"):
            parse_recording(b'{"events": [' + b"[]," * 1000 + b"[]]}", "x")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "true", "-1", "1" * 400, "1.5", '"1"'])
@pytest.mark.parametrize(
    "trace",
    [
        '{"events": [["alloc", %s, 2, 0]]}',
        '{"events": [["alloc", 2, %s, 0]]}',
        '{"events": [["alloc", 2, 2, 0]], "final_segments": [[%s, 2, "large", 0, false]]}',
        '{"events": [["alloc", 2, 2, 0]], "final_segments": [[2, %s, "large", 0, false]]}',
    ],
)
def test_numbers_of_a_trace(trace, number):
    with pytest.raises(VramwiseError) as caught:
        parse_recording((trace % number).encode(), "x")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "[[]]", '"a"'])
@pytest.mark.parametrize("name", ["max_split_size", "garbage_collection_threshold", "roundup_power2_divisions"])
def test_settings_of_a_trace(name, number):
    trace = f'{{"events": [["alloc", 2, 2, 0]], "settings": {{"{name}": {number}}}}}'
    with pytest.raises(VramwiseError, match=f"the recording's {name}"):
        parse_recording(trace.encode(), "x")


def test_memory_given_back_without_end(monkeypatch):
    monkeypatch.setattr("vramwise.recordings.replay.MOST_LOOKED_AT", 1000)
    entries = []
    for number in range(50):
        address = BASE + number * 20 * MIB
        entries += [entry("segment_alloc", address, 20 * MIB), entry("alloc", address, 9 * MIB)]
    for number in range(50):
        entries += [entry("segment_free", BASE - (number + 1) * 40 * MIB, 20 * MIB), entry("alloc", BASE, 30 * MIB)]
    with pytest.raises(VramwiseError, match="releases memory too often"):
        replay(parse_recording(pickle._dumps(snapshot(entries, [])), "x"))


def growth(action, count):
    """Entries that a search over all that follows would make quadratic."""
    return [entry(action, BASE + number * 4 * MIB, 2 * MIB, stream=number) for number in range(count)]


@pytest.mark.parametrize("action", ["segment_map", "segment_unmap", "segment_free", "free_requested", "oom"])
def test_work_grows_with_the_events(action):
    """Eight times the events: about eight times the lines run, where a search for each event would take 64 times."""

    def lines(count):
        recording = parse_recording(pickle._dumps(snapshot(growth(action, count), [])), "x")
        run = 0

        def trace(frame, event, argument):
            nonlocal run
            run += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            replay(recording)
        finally:
            sys.settrace(before)
        return run

    assert lines(1600) < 12 * lines(200)


def test_stacks_are_compared_as_calls():
    entries = [
        entry("segment_alloc", BASE, 20 * MIB),
        entry("segment_free", BASE, 20 * MIB, frames=nested(60)),
        entry("segment_alloc", BASE, 20 * MIB, frames=nested(60)),
        entry("alloc", BASE, 2 * MIB),
    ]
    assert replay(parse_recording(pickle._dumps(snapshot(entries, [])), "x")).allocations == 1
