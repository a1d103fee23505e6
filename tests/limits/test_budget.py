"""The budget for reading: what is counted, what is refused, what a confined process may take."""

import gzip
import json
import os
import signal
import sys
import time

import pytest

from vramwise.errors import ConfigError, VramwiseError
from vramwise.limits import Budget, ceilings, json_memory_bytes, parse_json, read_file, unzipped
from vramwise.limits.child import child_lines, shared_time
from vramwise.limits.json_values import OverBudget, TooDeep
from vramwise.limits.meter import Meter, TooLarge, charge, metered


def test_a_file_is_read_up_to_its_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_file(path, 100, "a test") == b"x" * 100
    with pytest.raises(VramwiseError, match="too large for a test"):
        read_file(path, 99, "a test")
    with pytest.raises(VramwiseError, match="cannot be read: No such file"):
        read_file(tmp_path / "none", 99, "a test")


@pytest.mark.skipif(os.name == "nt", reason="pipes and devices of Unix")
def test_devices_and_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(VramwiseError, match="is a device or a pipe"):
            read_file(path, 1000, "a test")


def test_gzip_is_unpacked_up_to_a_bound():
    packed = gzip.compress(b"x" * 10_000)
    assert unzipped(b"plain", 10, "a test") == b"plain"
    assert len(unzipped(packed, 10_000, "a test")) == 10_000
    with pytest.raises(VramwiseError, match="unpacks to more than"):
        unzipped(packed, 9_999, "a test")


VALUES = {
    "numbers": [1000 + number for number in range(20_000)],
    "floats": [number / 7 for number in range(20_000)],
    "empty lists": [[] for _ in range(20_000)],
    "short lists": [[1000] for _ in range(20_000)],
    "empty objects": [{} for _ in range(20_000)],
    "small objects": [{"a": 1000} for _ in range(20_000)],
    "one object": {f"key {number}": number + 1000 for number in range(20_000)},
    "texts": [f"text {number}" for number in range(20_000)],
    "wide texts": ["\U0001f600" + "a" * 50] * 20_000,
    "a wide text": "\U0001f600" + "a" * 1_000_000,
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("escaped", [False, True])
def test_values_take_no_more_memory_than_was_counted(name, escaped):
    import tracemalloc

    data = json.dumps(VALUES[name], separators=(",", ":"), ensure_ascii=escaped).encode()
    tracemalloc.start()
    try:
        value = json.loads(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value == VALUES[name]
    assert peak + len(data) <= json_memory_bytes(data) * 1.05


def test_a_text_is_not_parsed_where_its_values_would_take_too_much(monkeypatch):
    monkeypatch.setattr(ceilings, "MEMORY_BYTES", 10_000)
    assert parse_json(b'{"a": [1, 2]}') == {"a": [1, 2]}
    with pytest.raises(OverBudget, match="would take"):
        parse_json(b"[" + b"1," * 1000 + b"1]")


def test_depth_is_a_sentence():
    with pytest.raises(TooDeep, match="nested too deeply"):
        parse_json(b"[" * 100_000)


def test_a_budget_ends_with_the_first_thing_that_is_spent():
    budget = Budget(size_bytes=100, rows=3, lines=10, values_bytes=1000)
    assert budget.take(size_bytes=100, rows=3, lines=10, values_bytes=1000)
    assert budget.spent
    assert not budget.cut
    assert not budget.take(lines=1)
    assert budget.cut
    assert "lines" in budget.bound


CHILDREN = """
import os, sys, threading, time
from vramwise.limits.child import confine

def main(kind):
    confine()
    print("begun", flush=True)
    held = []
    while kind == "memory":
        held.append(bytearray(b"x" * 2**24))
    while kind == "time":
        pass
    print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("kind", "lines"), [("memory", [b"begun\n"]), ("time", [b"begun\n"]), ("", [b"begun\n", b"ended\n"])]
)
def test_a_confined_process_ends_itself(tmp_path, monkeypatch, kind, lines):
    (tmp_path / "hungry_child.py").write_text(
        CHILDREN.replace("confine()", "limit(); confine()").replace("def main", LOWER)
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    started = time.monotonic()
    assert list(child_lines("hungry_child", kind)) == lines
    assert time.monotonic() - started < 60


LOWER = """
def limit():
    from vramwise.limits import ceilings
    ceilings.CHILD_MEMORY_BYTES, ceilings.CHILD_CPU_SECONDS = 200 * 2**20, 1

def main"""


def test_what_a_confined_process_is_given(tmp_path, monkeypatch):
    (tmp_path / "echo_child.py").write_text("import sys\ndef main():\n    sys.stdout.write(sys.stdin.read().upper())\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    assert list(child_lines("echo_child", given=b"a\nb\n")) == [b"A\n", b"B\n"]


def test_nothing_is_imported_from_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "pyarrow.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    list(child_lines("vramwise.opening.data.parquet_child", "none.parquet", "1", "1", "1"))
    assert not (tmp_path / "ran").exists()


def test_several_confined_processes_share_their_time(tmp_path, monkeypatch):
    (tmp_path / "busy_child.py").write_text(
        "import time\nfrom vramwise.limits.child import confine\ndef main():\n    confine()\n"
        "    while time.process_time() < 1.2:\n        pass\n    print('ended')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(ceilings, "CHILD_CPU_SECONDS", 2)
    with shared_time():
        assert list(child_lines("busy_child")) == [b"ended\n"]
        assert list(child_lines("busy_child")) == [], "less than a second is left"
        assert list(child_lines("busy_child")) == [], "none is left"
    assert list(child_lines("busy_child")) == [b"ended\n"]


def read(meter, reader):
    with metered(meter, "source"):
        reader()


def endless():
    while True:
        pass


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_the_net_ends_a_reading_that_nothing_charges():
    meter = Meter(seconds_left=0.05)
    with pytest.raises(ConfigError, match="too much work"):
        read(meter, endless)
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    with pytest.raises(ConfigError, match="again and again"), metered(meter, "source"):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux")
def test_the_net_limits_memory_and_gives_it_back():
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(ConfigError, match="too much work"), metered(Meter(), "source"):
        bytearray(2 * ceilings.READER_MEMORY_BYTES)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("error", [ValueError("odd\nodd"), OverflowError("odd"), UnicodeError("odd"), MemoryError()])
def test_whatever_goes_wrong_in_a_reading_is_one_sentence_with_its_line(error):
    meter = Meter()

    def fail():
        meter.step(7)
        raise error

    with pytest.raises(ConfigError, match="this source") as found:
        read(meter, fail)
    assert (found.value.line, "\n" in found.value.message) == (7, False)


def test_a_value_has_its_share_and_a_reading_has_one():
    meter = Meter(reading_units=1_000_000)

    def grow():
        charge(200_000)
        with pytest.raises(TooLarge):
            charge(200_000)
        for _ in range(5):
            meter.begin_value()
            charge(200_000)

    with pytest.raises(ConfigError, match="too much work"):
        read(meter, grow)
