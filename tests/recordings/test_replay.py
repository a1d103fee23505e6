"""The simulator against real recordings, event by event, and against what the same runs did under other settings."""

import contextlib
import gzip
import json
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import (
    DATA,
    FACTS,
    SHARED,
    STRESS,
    block,
    entry,
    load_trace,
    recording,
    segment,
    snapshot,
    stress_path,
    trace_paths,
)

from installed import NO_TRACES
from nightly import examples
from vramwise.errors import VramwiseError
from vramwise.recordings.reader import parse_recording, read_recording
from vramwise.recordings.recording import ACTIONS
from vramwise.recordings.replay import replay
from vramwise.units import GIB, MIB

BASE = 0x7F0000000000


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", trace_paths(), ids=lambda path: path.name.split(".")[0])
def test_training_runs_are_met_at_every_allocation(path):
    trace = load_trace(path)
    result = replay(read_recording(path))
    assert result.allocations == sum(event[0] == "alloc" for event in trace["events"])
    assert result.mismatches == 0
    assert result.peak_reserved_bytes == result.recorded_peak_reserved_bytes == trace["peak_reserved"]
    assert result.peak_allocated_bytes == trace["peak_allocated"]


@pytest.mark.parametrize("path", [path for path in trace_paths() if "default" in path.name], ids=lambda path: path.name)
def test_plain_segments_need_not_be_told_where_they_were(path):
    """Placed as the driver was seen to place them, runs on the default settings come out the same."""
    result = replay(read_recording(path), settings="garbage_collection_threshold:0.9")
    assert not result.own_settings
    assert result.mismatches == 0
    assert result.peak_reserved_bytes == load_trace(path)["peak_reserved"]


@pytest.mark.parametrize("case", STRESS)
def test_hard_cases_are_met_at_every_allocation(case):
    result = replay(read_recording(stress_path(case)))
    assert result.mismatches == 0
    if case != "ring":  # whose oldest events are lost
        assert result.peak_reserved_bytes == FACTS[case]["peak_reserved_bytes"]
        assert result.peak_allocated_bytes == FACTS[case]["peak_allocated_bytes"]
    assert result.recorded_failures == FACTS[case]["ooms"]


LIMITED = [case for case in STRESS if FACTS[case]["limit_bytes"]]


@pytest.mark.parametrize("case", LIMITED)
def test_told_the_limit_the_simulator_finds_retries_collections_and_failures_itself(case):
    facts = FACTS[case]
    result = replay(
        read_recording(stress_path(case)),
        torch=(2, 11),
        limit_bytes=facts["limit_bytes"],
        total_bytes=facts["total_bytes"],
    )
    assert result.failure is None
    assert result.mismatches == 0
    assert result.failures_served == 0
    assert result.recorded_failures == facts["ooms"]
    # With several streams a retry may first complete frees, which the recording shows as if they had come before it.
    assert facts["retries"] - (2 if "streams" in case else 0) <= result.retries <= facts["retries"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("recorded", "other"),
    [
        ("lora_var_default", "lora_var_exp"),
        ("lora_var_default", "lora_var_exp_r16"),
        ("lora_var_exp", "lora_var_default"),
        ("lora_var_exp_r16", "lora_var_r16"),
        ("lora_var_r16", "lora_var_exp"),
        ("lora_llama1b_var_default_eval8", "lora_llama1b_var_exp_eval8"),
        ("lora_llama1b_var_exp_eval8", "lora_llama1b_var_default_eval8"),
    ],
)
def test_under_other_settings_it_reserves_what_the_run_did_under_them(recorded, other):
    """The same training, really run under both settings: one recording predicts the other to the byte."""
    if not SHARED.is_dir():
        pytest.skip(NO_TRACES)
    measured = read_recording(SHARED / f"{other}.json.gz")
    result = replay(read_recording(SHARED / f"{recorded}.json.gz"), settings=measured.settings)
    assert not result.own_settings
    assert result.peak_reserved_bytes == load_trace(SHARED / f"{other}.json.gz")["peak_reserved"]


def cut(trace, start):
    """The end of a trace as a snapshot: it begins with memory in use, and only the final segments tell which."""
    live = {}
    for action, address, size, _ in trace["events"]:
        if action == "alloc":
            live[address] = size
        elif action == "free_completed":
            del live[address]
    segments = []
    for address, size, kind, stream, expandable in trace["final_segments"]:
        inside = sorted(at for at in live if address <= at < address + size)
        ends = [*inside[1:], address + size]
        blocks = []
        for at, following in zip(inside, ends, strict=False):
            rounded = -(-live[at] // 512) * 512
            whole = not expandable and kind == "large" and following - at - rounded <= MIB
            blocks.append(block(at, following - at if whole else rounded, live[at]))
        segments.append(segment(address, size, blocks, kind, expandable, stream))
    entries = [entry(*event) for event in trace["events"][start:]]
    return snapshot(entries, segments, trace["settings"]["PYTORCH_CUDA_ALLOC_CONF"])


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["full_gc_default", "full_llama1b_axo_s1024_b2_gc"])
def test_a_recording_may_begin_with_memory_in_use(name, share):
    trace = load_trace(DATA / f"{name}.json.gz")
    events = trace["events"]
    start = int(len(events) * share)
    while events[start][0] != "alloc" or events[start - 1][0].startswith("segment"):
        start += 1
    result = replay(parse_recording(pickle.dumps(cut(trace, start)), "late"), torch=(2, 11))
    assert result.allocations == sum(event[0] == "alloc" for event in events[start:])
    assert result.initial_reserved_bytes > 0
    assert result.mismatches == 0
    assert result.recorded_peak_reserved_bytes == trace["peak_reserved"]


def test_a_trace_without_blocks_takes_untouched_memory_for_used():
    trace = load_trace(DATA / "full_llama1b_axo_s1024_b2_gc.json.gz")
    start = next(at for at in range(3000, 4000) if trace["events"][at][0] == "free_requested")
    late = {**trace, "events": trace["events"][start:]}
    result = replay(parse_recording(json.dumps(late).encode(), "late.json"))
    assert result.mismatches == 0


def test_a_block_that_was_not_split_keeps_its_rest():
    """10.5 MiB of a 12 MiB segment are in use; that the block has all 12 shows only in how its gap is too small."""
    entries = [
        entry("free_requested", BASE, int(11.5 * MIB)),
        entry("free_completed", BASE, int(11.5 * MIB)),
        entry("alloc", BASE, 12 * MIB),
    ]
    result = replay(recording(entries, [segment(BASE, 12 * MIB, [block(BASE, 12 * MIB)])]))
    assert (result.mismatches, result.initial_reserved_bytes) == (0, 12 * MIB)
    assert result.peak_allocated_bytes == 12 * MIB


def test_where_a_free_block_begins_shows_in_what_is_served_from_it():
    """A block of 10.2 MiB, unsplit with 0.8 MiB more, then 20 MiB free: the first request there begins at 11 MiB."""
    entries = [
        entry("alloc", BASE + 11 * MIB, 20 * MIB),
        entry("free_requested", BASE, int(10.2 * MIB)),
        entry("free_completed", BASE, int(10.2 * MIB)),
        entry("alloc", BASE, 11 * MIB),
    ]
    final = segment(BASE, 31 * MIB, [block(BASE, 11 * MIB), block(BASE + 11 * MIB, 20 * MIB)])
    result = replay(recording(entries, [final]))
    assert result.mismatches == 0
    assert result.peak_allocated_bytes == 31 * MIB


class TestReleases:
    """empty_cache leaves no event: a run of segment_free stands for it, and for an allocation under pressure."""

    empty_cache_stack = ({"name": "empty_cache", "filename": "memory.py", "line": 1},)

    def entries(self, *, frames=None, then=()):
        return [
            entry("segment_alloc", BASE, 20 * MIB),
            entry("alloc", BASE, 20 * MIB),
            entry("segment_alloc", BASE + GIB, 30 * MIB),
            entry("alloc", BASE + GIB, 30 * MIB),
            entry("free_requested", BASE, 20 * MIB),
            entry("free_completed", BASE, 20 * MIB),
            entry("segment_free", BASE, 20 * MIB, frames=frames),
            *then,
        ]

    def test_followed_by_no_growth_it_is_a_call(self):
        then = [entry("free_requested", BASE + GIB, 30 * MIB), entry("free_completed", BASE + GIB, 30 * MIB)]
        source = recording(self.entries(then=then), [segment(BASE + GIB, 30 * MIB, [])])
        assert replay(source).mismatches == 0
        # and counts under other settings too
        other = replay(source, settings="expandable_segments:True")
        assert other.peak_reserved_bytes == 60 * MIB

    def grown(self, size, **options):
        then = [entry("segment_alloc", BASE, size), entry("alloc", BASE, size)]
        final = [segment(BASE, size, [block(BASE, size)]), segment(BASE + GIB, 30 * MIB, [block(BASE + GIB, 30 * MIB)])]
        return recording(self.entries(then=then, **options), final)

    def test_before_growth_beyond_the_peak_it_is_pressure(self):
        source = self.grown(40 * MIB)
        assert replay(source).mismatches == 0
        # nobody gives memory back under settings without a limit
        assert replay(source, settings="garbage_collection_threshold:0.9").peak_reserved_bytes == 90 * MIB
        # the limit that explains it: the simulator does the same on its own
        limited = replay(source, limit_bytes=70 * MIB)
        assert (limited.mismatches, limited.retries) == (0, 1)

    def test_unless_its_stack_says_that_it_was_a_call(self):
        source = self.grown(40 * MIB, frames=list(self.empty_cache_stack))
        assert replay(source).mismatches == 0
        assert replay(source, settings="garbage_collection_threshold:0.9").peak_reserved_bytes == 70 * MIB

    def test_before_growth_that_had_room_it_is_a_call(self):
        source = self.grown(10 * MIB, frames=None)
        entries = list(source.entries)
        # a higher peak later on shows that 60 MiB would have been allowed
        entries += [entry("segment_alloc", BASE + 2 * GIB, 30 * MIB), entry("alloc", BASE + 2 * GIB, 30 * MIB)]
        final = [
            segment(BASE, 10 * MIB, [block(BASE, 10 * MIB)]),
            segment(BASE + GIB, 30 * MIB, [block(BASE + GIB, 30 * MIB)]),
            segment(BASE + 2 * GIB, 30 * MIB, [block(BASE + 2 * GIB, 30 * MIB)]),
        ]
        source = recording(entries, final)
        assert replay(source).mismatches == 0
        assert replay(source, settings="garbage_collection_threshold:0.9").peak_reserved_bytes == 70 * MIB


def test_a_failed_request_may_be_served_under_other_settings():
    entries = [
        entry("segment_alloc", BASE, 20 * MIB),
        entry("alloc", BASE, 4 * MIB),
        {"action": "oom", "device_free": 0, "size": 30 * MIB, "stream": 0, "time_us": 0},
    ]
    source = recording(entries, [segment(BASE, 20 * MIB, [block(BASE, 4 * MIB)])])
    assert replay(source).recorded_failures == 1
    assert replay(source, limit_bytes=40 * MIB).failures_served == 0
    assert replay(source, limit_bytes=4 * MIB).recorded_failures == 1
    assert replay(source, settings="expandable_segments:True", limit_bytes=50 * MIB).failures_served == 1


def test_a_limit_too_low_ends_the_replay_there():
    result = replay(read_recording(DATA / "full_gc_default.json.gz"), limit_bytes=6 * GIB)
    assert result.failure is not None
    assert result.failure.reserved_bytes <= 6 * GIB
    assert result.allocations < 11_752
    whole = replay(read_recording(DATA / "full_gc_default.json.gz"))
    assert result.recorded_peak_reserved_bytes == whole.recorded_peak_reserved_bytes > 6 * GIB
    late = read_recording(stress_path("late-default"))
    assert replay(late, settings="expandable_segments:True", limit_bytes=100 * MIB).failure.event == -1


def test_the_first_mismatch_is_shown():
    entries = [entry("segment_alloc", BASE, 22 * MIB), entry("alloc", BASE, 4 * MIB)]
    result = replay(recording(entries, [segment(BASE, 22 * MIB, [block(BASE, 4 * MIB)])]))
    assert result.mismatches == 1
    first = result.first_mismatch
    assert (first.event, first.requested_bytes) == (1, 4 * MIB)
    assert (first.reserved_bytes, first.recorded_reserved_bytes) == (20 * MIB, 22 * MIB)


def by_age(torch):
    """Two free halves of the same size, one in an old segment, one in a young one at a lower address.

    Which half a request gets depends on the version; the other segment is then free as a whole and serves a larger one.
    """
    old, young = BASE + GIB, BASE
    chosen, other = (old, young) if torch == (2, 13) else (young, old)

    def freed(address, size):
        return [entry("free_requested", address, size), entry("free_completed", address, size)]

    entries = []
    for address in (old, young):
        entries += [entry("segment_alloc", address, 24 * MIB), entry("alloc", address, 24 * MIB)]
        entries += freed(address, 24 * MIB)
        entries += [entry("alloc", address, 12 * MIB), entry("alloc", address + 12 * MIB, 12 * MIB)]
    entries += freed(old, 12 * MIB) + freed(young, 12 * MIB)
    entries += [entry("alloc", chosen, 12 * MIB), *freed(other + 12 * MIB, 12 * MIB), entry("alloc", other, 24 * MIB)]
    halves = [block(chosen, 12 * MIB), block(chosen + 12 * MIB, 12 * MIB)]
    return recording(entries, [segment(chosen, 24 * MIB, halves), segment(other, 24 * MIB, [block(other, 24 * MIB)])])


@pytest.mark.parametrize("torch", [(2, 12), (2, 13)])
def test_both_orders_between_equal_blocks_replay(torch):
    result = replay(by_age(torch), torch=torch)
    assert (result.mismatches, result.torch) == (0, torch)
    wrong = (2, 12) if torch == (2, 13) else (2, 13)
    assert replay(by_age(torch), torch=wrong).mismatches > 0


@pytest.mark.parametrize("torch", [(2, 12), (2, 13)])
def test_the_version_shows_in_the_recording(torch):
    assert replay(by_age(torch)).torch == torch


def test_a_replay_is_fast():
    source = read_recording(DATA / "full_gc_default.json.gz")
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        result = replay(source)
        best = min(best, time.process_time() - started)
    assert result.events / best > 200_000


def test_the_tree_holds_gzip_files_that_anyone_can_read():
    for path in DATA.glob("*.gz"):
        with gzip.open(path) as file:
            assert file.read(1) in (b"{", b"\x80")


def test_segments_that_overlap_are_refused():
    given_back = ["segment_free", BASE, 512, 0]
    trace = {
        "events": [given_back, ["free_requested", BASE + 2 * MIB, 512, 0], given_back],
        "settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        "final_segments": [[BASE, 2 * MIB, "small", 0, True]],
    }
    with pytest.raises(VramwiseError, match=r"odd.json: the recording is inconsistent"):
        replay(parse_recording(json.dumps(trace).encode(), "odd.json"))


ADDRESSES = st.sampled_from([BASE + step * 2 * MIB for step in range(12)])
ANY_EVENTS = st.lists(
    st.tuples(
        st.sampled_from([*ACTIONS, "snapshot"]),
        ADDRESSES,
        st.sampled_from([512, MIB, 2 * MIB, 20 * MIB]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=examples(200), deadline=None)
@given(
    events=ANY_EVENTS,
    finals=st.lists(st.tuples(ADDRESSES, st.booleans(), st.integers(0, 1), st.booleans()), max_size=4),
    conf=st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:30"]),
    other=st.sampled_from([None, "", "expandable_segments:True"]),
    limit=st.sampled_from([None, 60 * MIB]),
)
def test_recordings_that_contradict_themselves_do_no_harm(events, finals, conf, other, limit):
    trace = {
        "events": events,
        "settings": {"PYTORCH_CUDA_ALLOC_CONF": conf},
        "final_segments": [
            (address, 2 * MIB if small else 20 * MIB, "small" if small else "large", stream, expandable)
            for address, small, stream, expandable in finals
        ],
    }
    source = parse_recording(json.dumps(trace).encode(), "odd.json")
    with contextlib.suppress(VramwiseError):
        assert replay(source, settings=other, limit_bytes=limit).events == len(events)
