import json
import pickle

import pytest
from made_recordings import DATA, stress_path

DEFAULT = DATA / "full_gc_default.json.gz"


def test_the_first_line_is_the_one_that_matters(vramwise):
    result = vramwise("replay", DEFAULT)
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == "all 11,752 allocations replayed, reserved bytes as recorded after each"


def test_what_if(vramwise):
    result = vramwise("replay", DEFAULT, "--alloc-conf", "expandable_segments:True")
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == (
        "with expandable_segments:True this run would have reserved 8.5 GiB instead of 9.4 GiB (−888 MiB)"
    )


def test_settings_that_change_nothing(vramwise):
    result = vramwise("replay", DEFAULT, "--alloc-conf", "garbage_collection_threshold:0.8")
    assert result.output.splitlines()[0] == (
        "with garbage_collection_threshold:0.8 this run would have reserved the same 9.4 GiB"
    )


def test_a_limit_that_is_too_low(vramwise):
    result = vramwise("replay", DEFAULT, "--memory-limit", "7GB")
    assert result.exit_code == 1
    assert result.output.startswith("runs out of memory at event ")


def test_a_limit_that_needs_retries(vramwise):
    result = vramwise("replay", DEFAULT, "--memory-limit", "9GB")
    assert result.exit_code == 0
    assert "within 9.0 GiB this run would have reserved 8.9 GiB instead of 9.4 GiB" in result.output
    assert "the cache was released to make room" in result.output


def test_json(vramwise):
    result = vramwise("replay", DEFAULT, "--format", "json")
    document = json.loads(result.output)
    assert document == {
        "version": 1,
        "file": str(DEFAULT),
        "device": 0,
        "torch": "2.11",
        "settings": "",
        "recorded_settings": "",
        "own_settings": True,
        "limit_bytes": None,
        "events": 34_056,
        "events_left_out": 0,
        "allocations": 11_752,
        "mismatches": 0,
        "first_mismatch": None,
        "peak_allocated_bytes": 8_929_011_712,
        "peak_reserved_bytes": 10_055_843_840,
        "recorded_peak_reserved_bytes": 10_055_843_840,
        "initial_reserved_bytes": 2_097_152,
        "retries": 0,
        "recorded_out_of_memory": 0,
        "recorded_out_of_memory_served": 0,
        "out_of_memory": None,
    }


def test_json_of_a_failure(vramwise):
    result = vramwise("replay", DEFAULT, "--memory-limit", "7GB", "--format", "json")
    failure = json.loads(result.output)["out_of_memory"]
    assert failure["requested_bytes"] > 0
    assert failure["reserved_bytes"] <= 7 << 30


def test_failures_of_the_recording_are_counted(vramwise):
    result = vramwise("replay", stress_path("expandable-limit"))
    assert result.exit_code == 0
    assert "out of memory   24 in the recording" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alloc-conf", "expandable:True"], "not an option of torch's CUDA allocator"),
        (["--alloc-conf", "large_segment_size_mb:32", "--torch", "2.10"], "it came with torch 2.11"),
        (["--alloc-conf", "backend:cudaMallocAsync"], "only torch's native allocator is simulated"),
        (["--memory-limit", "lots"], "is not a size"),
        (["--device", "5"], "not device 5"),
    ],
)
def test_bad_usage_is_exit_code_2(vramwise, words, message):
    result = vramwise("replay", DEFAULT, *words)
    assert result.exit_code == 2
    assert message in str(result.exception)


def test_a_hostile_file_is_exit_code_2(vramwise, tmp_path):
    class Trap:
        def __reduce__(self):
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    path = tmp_path / "hostile.pickle"
    path.write_bytes(pickle.dumps(Trap()))
    result = vramwise("replay", path)
    assert result.exit_code == 2
    assert "nothing was run" in str(result.exception)
    assert not (tmp_path / "ran").exists()


def test_what_a_long_recording_leaves_out_is_said(vramwise, monkeypatch):
    from vramwise.recordings import reader

    monkeypatch.setattr(reader.read_recording, "__defaults__", (None, 20_000))
    result = vramwise("replay", DEFAULT)
    assert "left out        the first 14,151 events" in result.output
    assert json.loads(vramwise("replay", DEFAULT, "--format", "json").output)["events_left_out"] > 13_000


def test_a_diagnosis_of_a_long_snapshot_says_what_it_left_out(vramwise, monkeypatch):
    from vramwise.limits import ceilings

    monkeypatch.setattr(ceilings, "DIAGNOSED_EVENTS", 20_000)
    assert "events of the snapshot were skipped" in vramwise("diagnose", "--snapshot", DEFAULT).output


def test_segments_and_streams_count_as_several_events():
    from vramwise.recordings.recording import collect_events

    plain = [["alloc", number * 4096, 4096, 0] for number in range(1000)]
    assert collect_events(plain, 1000).left_out == 0
    assert collect_events([["segment_map", *one[1:]] for one in plain], 1000).left_out == 950
    assert collect_events([[*one[:3], number] for number, one in enumerate(plain)], 1000).left_out > 990
    frees = [[action, *one[1:]] for one in plain[:500] for action in ("free_requested", "free_completed")]
    assert collect_events(frees, 1000).left_out == 0, "a free and its completion are two events of the file"
    assert collect_events([["free_completed", *one[1:]] for one in plain], 1000).left_out == 500
