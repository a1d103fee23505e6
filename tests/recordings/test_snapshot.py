"""A predicted run in torch's snapshot form: PyTorch's own viewer must be able to open it."""

import pickle
import pickletools
from itertools import pairwise

import pytest
from made_recordings import DATA, stress_path

from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.recordings.reader import parse_recording, read_recording
from vramwise.recordings.recorded import timeline_of
from vramwise.recordings.replay import replay
from vramwise.recordings.snapshot import write_snapshot
from vramwise.timeline import Action, Event, Phase, Tag, Timeline
from vramwise.units import MIB

# What the viewer's unpickler (torch/utils/viz/MemoryViz.js) knows.
VIEWER_OPCODES = {
    *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK"),
    *("MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
TIMELINE = Timeline(
    events=(
        Event(Action.PHASE, 0, 0, 0, 0),
        Event(Action.ALLOC, 1, 30 * MIB, 0, 0),
        Event(Action.PHASE, 0, 0, 0, 1),
        Event(Action.ALLOC, 2, 5 * MIB, 0, 1),
        Event(Action.ALLOC, 3, 700, 0, 1),
        Event(Action.FREE, 2, 0, 0, 0),
        Event(Action.EMPTY_CACHE, 0, 0, 0, 0),
    ),
    tags=(Tag("weights", "embed"), Tag("activations", "layers.7.mlp: gate × up")),
    phases=(Phase("load", 0), Phase("forward", 3)),
)


def written(conf="", timeline=TIMELINE, **options):
    data = write_snapshot(timeline, parse_settings(conf, (2, 13)), torch=(2, 13), **options)
    return data, pickle.loads(data)


def test_events_in_torchs_order():
    _, snapshot = written()
    (trace,) = snapshot["device_traces"]
    assert [event["action"] for event in trace] == [
        *("segment_alloc", "alloc", "segment_alloc", "alloc", "segment_alloc", "alloc"),
        *("free_requested", "free_completed", "segment_free"),
    ]
    assert [event["time_us"] for event in trace] == sorted(event["time_us"] for event in trace)
    assert trace[3]["frames"] == [
        {"name": "layers.7.mlp: gate × up", "filename": "activations", "line": 3},
        {"name": "forward", "filename": "step", "line": 3},
    ]
    assert trace[3]["size"] == 5 * MIB
    # the viewer fails on categories without this one
    assert {event["category"] for event in trace} == {"weights", "activations", "unknown"}


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_segments_as_torch_lists_them(conf):
    _, snapshot = written(conf)
    for segment in snapshot["segments"]:
        blocks = segment["blocks"]
        assert segment["address"] == blocks[0]["address"]
        assert segment["total_size"] == sum(block["size"] for block in blocks)
        used = [block for block in blocks if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(block["size"] for block in used)
        assert segment["requested_size"] == sum(block["requested_size"] for block in used)
        assert segment["segment_pool_id"] == (0, 0)
        assert segment["is_expandable"] == bool(conf)
        for before, after in pairwise(blocks):
            assert before["address"] + before["size"] == after["address"]
    assert [segment["segment_type"] for segment in snapshot["segments"]].count("small") == 1
    assert snapshot["allocator_settings"]["expandable_segments"] == bool(conf)
    assert snapshot["external_annotations"] == []


def test_the_viewer_knows_every_opcode():
    source = read_recording(DATA / "full_llama1b_axo_s1024_b2_gc.json.gz")
    data, _ = written("expandable_segments:True", timeline_of(source, (2, 11)))
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= VIEWER_OPCODES


def test_running_out_of_memory_is_the_last_event():
    _, snapshot = written(limit_bytes=40 * MIB)
    last = snapshot["device_traces"][0][-1]
    assert (last["action"], last["size"], last["device_free"]) == ("oom", 5 * MIB, 10 * MIB)
    assert "addr" not in last


@pytest.mark.sampled(3)
@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "max_split_size_mb:64,roundup_power2_divisions:4"])
@pytest.mark.parametrize("torch", [(2, 11), (2, 13)])
def test_what_is_written_replays_without_a_mismatch(conf, torch):
    timeline = timeline_of(read_recording(DATA / "full_gc_default.json.gz"), (2, 11))
    settings = parse_settings(conf, torch)
    report = simulate(timeline, settings, torch=torch)
    result = replay(parse_recording(write_snapshot(timeline, settings, torch=torch), "written"), torch=torch)
    assert result.mismatches == 0
    assert result.peak_reserved_bytes == report.peak_reserved_bytes
    assert result.peak_allocated_bytes == report.peak_allocated_bytes


class TestRecordedTimeline:
    def test_a_recording_gives_the_peaks_it_had(self):
        source = read_recording(DATA / "full_gc_default.json.gz")
        result = replay(source)
        report = simulate(timeline_of(source, (2, 11)), parse_settings("", (2, 11)), torch=(2, 11))
        assert report.peak_reserved_bytes == result.recorded_peak_reserved_bytes
        assert report.peak_allocated_bytes == result.peak_allocated_bytes

    def test_allocations_are_named_by_their_stack(self):
        timeline = timeline_of(read_recording(stress_path("late-default")), (2, 11))
        labels = {tag.label for tag in timeline.tags}
        assert "in use before the recording" in labels
        assert any(label.startswith("record_stress.py:") and label.endswith(" _tensor") for label in labels)
        assert [phase.name for phase in timeline.phases] == ["before the recording", "recorded"]

    def test_calls_of_empty_cache_are_kept(self):
        timeline = timeline_of(read_recording(stress_path("late-default")), (2, 11))
        assert sum(event.action == Action.EMPTY_CACHE for event in timeline.events) == 3

    def test_without_stacks_it_says_so(self):
        timeline = timeline_of(read_recording(DATA / "full_gc_default.json.gz"), (2, 11))
        assert timeline.tags == [Tag("recorded", "no stack recorded")]
