"""The guard's log survives whatever kills its writer. No torch."""

import json

from vramwise.training.guard.memory_log import MemoryLog, log_path, read_log
from vramwise.training.guard.samples import Reading, Sample


def test_samples_come_back_as_they_were(tmp_path):
    reading = Reading(
        allocated_bytes=1,
        reserved_bytes=2,
        peak_allocated_bytes=3,
        peak_reserved_bytes=4,
        retries=5,
        device_free_bytes=6,
    )
    sample = Sample(step=7, phase="eval", reading=reading, width=8)
    with MemoryLog(tmp_path / "memory.jsonl") as log:
        log.write("sample", {"attempt": 1, **sample.to_json()})
    [record] = read_log(tmp_path / "memory.jsonl").of_kind("sample")
    assert Sample.from_json(record) == sample


def test_a_torn_line_costs_itself_only(tmp_path):
    path = tmp_path / "memory.jsonl"
    with MemoryLog(path) as log:
        log.write("sample", {"step": 1})
        log.write("sample", {"step": 2})
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with MemoryLog(path) as log:
            log.write("sample", {"step": 3})
        contents = read_log(path)
        steps = [record["step"] for record in contents.records]
        assert steps[-1] == 3
        assert steps[:-1] == [1, 2][: whole[:cut].count(b"\n")] or cut in (whole.index(b"\n"), len(whole) - 1)
        assert contents.torn <= 1


def test_an_open_log_can_be_read(tmp_path):
    path = tmp_path / "memory.jsonl"
    log = MemoryLog(path)
    log.write("start", {"attempt": 1})
    assert len(read_log(path).records) == 1
    log.close()
    log.close()


def test_strange_lines_are_passed_over(tmp_path):
    path = tmp_path / "memory.jsonl"
    path.write_text('[1]\n\n{"no": "kind"}\n' + json.dumps({"kind": "end"}) + "\n\x00\x00\n")
    contents = read_log(path)
    assert [record["kind"] for record in contents.records] == ["end"]
    assert contents.torn == 3


def test_ranks_do_not_share_a_file(tmp_path):
    assert log_path(tmp_path).name == "memory.jsonl"
    assert log_path(tmp_path, 3).name == "memory.rank3.jsonl"
