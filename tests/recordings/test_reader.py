import gzip
import json
import os
import pickle

import pytest
from made_recordings import DATA, STRESS, block, entry, load_trace, segment, snapshot, stress_path

from installed import not_root, posix
from vramwise.errors import VramwiseError
from vramwise.limits import ceilings
from vramwise.recordings.reader import parse_recording, read_recording
from vramwise.recordings.recording import ALLOC, FREE, FREE_COMPLETED, FREE_REQUESTED, SEGMENT_ALLOC
from vramwise.units import MIB

BASE = 0x7F0000000000
ENTRIES = [
    entry("segment_alloc", BASE, 20 * MIB),
    entry("alloc", BASE, 4 * MIB),
    entry("alloc", BASE + 4 * MIB, 2 * MIB),
    entry("free_requested", BASE, 4 * MIB),
    entry("free_completed", BASE, 4 * MIB),
    entry("snapshot", 0, 0),
    entry("free_requested", BASE + 4 * MIB, 2 * MIB),
    entry("alloc", BASE + 8 * MIB, 3 * MIB),
    entry("free_completed", BASE + 4 * MIB, 2 * MIB),
]
SNAPSHOT = snapshot(ENTRIES, [segment(BASE, 20 * MIB, [])], "expandable_segments:False")


def test_a_snapshot_pickled_or_gzipped():
    data = pickle.dumps(SNAPSHOT)
    for form in (data, gzip.compress(data)):
        recording = parse_recording(form, "x.pickle")
        assert recording.events.rows == [
            (SEGMENT_ALLOC, BASE, 20 * MIB, 0),
            (ALLOC, BASE, 4 * MIB, 0),
            (ALLOC, BASE + 4 * MIB, 2 * MIB, 0),
            (FREE, BASE, 4 * MIB, 0),
            (FREE_REQUESTED, BASE + 4 * MIB, 2 * MIB, 0),
            (ALLOC, BASE + 8 * MIB, 3 * MIB, 0),
            (FREE_COMPLETED, BASE + 4 * MIB, 2 * MIB, 0),
        ]
        assert recording.events.count == 9
        assert recording.events.landmarks == [0]
        assert recording.settings == "expandable_segments:False"
        assert recording.torch is None


@pytest.mark.parametrize(
    ("added", "internal", "conf", "torch"),
    [
        ({}, None, "", None),
        ({"host_segments": [], "host_traces": []}, None, "", (2, 14)),
        ({"host_segments": [], "host_traces": []}, "mallocWithAddress", "", (2, 15)),
        ({}, None, "expandable_segments:True,expandable_segments_reserve:0.5", (2, 15)),
        ({}, None, "large_segment_size_mb:32", None),
    ],
)
def test_fields_of_newer_snapshots_tell_their_torch(added, internal, conf, torch):
    entries = [dict(one) for one in ENTRIES]
    if internal:
        entries[1]["internal_metadata"] = internal
    made = {**snapshot(entries, [segment(BASE, 20 * MIB, [])], conf), **added}
    assert parse_recording(pickle.dumps(made), "x.pickle").torch == torch


def test_annotations_of_torch_2_14_are_notes_of_their_allocation():
    note = {**entry("annotate", BASE + 4 * MIB, 0), "user_metadata": "teacher logits"}
    late = {**entry("annotate", BASE + 12 * MIB, 0), "user_metadata": "nothing is there"}
    recording = parse_recording(pickle.dumps(snapshot([*ENTRIES[:3], note, *ENTRIES[3:], late], [])), "x.pickle")
    assert recording.events.rows == parse_recording(pickle.dumps(SNAPSHOT), "x.pickle").events.rows
    assert recording.notes() == {2: "teacher logits"}


def test_a_snapshot_of_host_memory_alone_is_refused():
    made = {**SNAPSHOT, "device_traces": [[]], "host_traces": [entry("alloc", BASE, MIB)]}
    with pytest.raises(VramwiseError, match="only pinned host memory"):
        parse_recording(pickle.dumps(made), "x.pickle")


def test_a_trace_file():
    trace = {
        "events": [[one["action"], one["addr"], one["size"], one["stream"]] for one in ENTRIES],
        "settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"},
        "final_segments": [[BASE, 20 * MIB, "large", 0, False]],
        "torch": "2.11.0+cu130",
    }
    recording = parse_recording(json.dumps(trace).encode(), "x.json")
    assert recording.events == parse_recording(pickle.dumps(SNAPSHOT), "x").events
    assert recording.torch == (2, 11)
    assert recording.settings == "max_split_size_mb:64"
    assert recording.segments[0].blocks is None


@pytest.mark.parametrize("case", STRESS)
def test_real_snapshots_are_read(case):
    recording = read_recording(stress_path(case))
    assert len(recording.events.rows) > 1000


def test_settings_are_put_together_where_the_string_is_missing():
    settings = {
        "expandable_segments": True,
        "max_split_size": 64 * MIB,
        "garbage_collection_threshold": 0.6,
        "roundup_power2_divisions": {"1": 2, "2": 0, "4": 8},
    }
    recording = parse_recording(pickle.dumps({**SNAPSHOT, "allocator_settings": settings}), "x")
    assert recording.settings == (
        "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.6,"
        "roundup_power2_divisions:[1:2,2:0,4:8]"
    )


TWO_DEVICES = {**SNAPSHOT, "device_traces": [[], ENTRIES[:2], ENTRIES]}


class TestDevices:
    def test_the_one_with_the_most_events_is_taken(self):
        assert parse_recording(pickle.dumps(TWO_DEVICES), "x").device == 2

    def test_another_can_be_asked_for(self):
        recording = parse_recording(pickle.dumps(TWO_DEVICES), "x", device=1)
        assert (recording.device, len(recording.events.rows), len(recording.segments)) == (1, 2, 0)

    def test_one_without_events_is_an_error(self):
        with pytest.raises(VramwiseError, match="nothing was recorded on device 0, only on 1, 2"):
            parse_recording(pickle.dumps(TWO_DEVICES), "x", device=0)

    def test_a_trace_file_has_one(self):
        with pytest.raises(VramwiseError, match="not device 1"):
            parse_recording(b'{"events": []}', "x", device=1)


def damaged(**changes):
    return pickle.dumps({**SNAPSHOT, **changes})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a pickle"),
        (b"[1, 2]", "not a pickle"),
        (b"{", "not valid JSON"),
        (b'{"events": 3}', 'no list of "events"'),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply|not readable"),
        (b'{"events": [["alloc", 1, 2]]}', "not a recording of torch's allocator"),
        (b'{"events": [[["alloc"], 1, 2, 0]]}', "not a recording of torch's allocator"),
        (b'{"events": [["alloc", "1", 2, 0]]}', r"event 0 \(alloc\) has no usable address"),
        (b'{"events": [["alloc", true, 2, 0]]}', "has no usable address"),
        (b'{"events": [["alloc", 1, -2, 0]]}', "that no card has"),
        (b'{"events": [["alloc", 281474976710656, 2, 0]]}', "that no card has"),
        (b'{"events": [], "final_segments": [[1, 0, "small", 0, false]]}', "a segment without usable address"),
        (b'{"events": [], "final_segments": 7}', "not a recording"),
        (b'{"events": []}', "nothing to replay"),
        (pickle.dumps([SNAPSHOT]), "the pickle holds a list, not a dict"),
        (damaged(device_traces=[[]]), "contains no allocation history: call torch.cuda.memory._record_memory_history"),
        (damaged(device_traces=[[3]]), "not a recording of torch's allocator"),
        (damaged(segments=None), "not a recording of torch's allocator"),
        (damaged(segments=[{"address": 1}]), "not a recording of torch's allocator"),
        (damaged(segments=[{**segment(BASE, MIB, []), "total_size": 2 * MIB}]), "blocks do not fill their segment"),
        (damaged(segments=[segment(BASE, MIB, [block(BASE, -5)])]), "a block of size -5"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], "gzip data is truncated"),
        (b"\x1f\x8bgarbage", "damaged gzip data"),
    ],
)
def test_bad_files_are_one_clear_sentence(data, message):
    with pytest.raises(VramwiseError, match=message) as caught:
        parse_recording(data, "bad.file")
    assert str(caught.value).startswith("bad.file")
    assert "\n" not in str(caught.value)


def test_a_file_that_unpacks_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(ceilings, "RECORDING_BYTES", 1000)
    with pytest.raises(VramwiseError, match="unpacks to more than"):
        parse_recording(gzip.compress(b"x" * 100_000), "bomb.gz")


def test_a_file_too_large_is_not_even_read(monkeypatch, tmp_path):
    path = tmp_path / "large.pickle"
    path.write_bytes(b"x" * 2000)
    monkeypatch.setattr(ceilings, "RECORDING_BYTES", 1000)
    with pytest.raises(VramwiseError, match="too large for a recording"):
        read_recording(path)


@posix
@not_root
def test_an_unreadable_file(tmp_path):
    path = tmp_path / "secret.pickle"
    path.write_bytes(b"")
    path.chmod(0)
    with pytest.raises(VramwiseError, match="cannot be read"):
        read_recording(path)


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "no.pickle", tmp_path):
        with pytest.raises(VramwiseError, match="cannot be read"):
            read_recording(path)


def test_a_hostile_snapshot_runs_nothing(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    with pytest.raises(VramwiseError, match="nothing was run"):
        parse_recording(pickle.dumps({**SNAPSHOT, "external_annotations": [Trap()]}), "hostile.pickle")
    assert not (tmp_path / "ran").exists()


def test_the_traces_in_the_tree_are_complete():
    trace = load_trace(DATA / "full_gc_default.json.gz")
    assert {"events", "settings", "final_segments", "peak_allocated", "peak_reserved", "torch"} <= set(trace)
