"""Pickles from elsewhere: plain data is read, everything else refused, and nothing in the file ever runs."""

import contextlib
import os
import pickle
import struct
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vramwise.errors import VramwiseError
from vramwise.recordings.unpickle import load_plain


class Trap:
    """Runs a command when loaded by Python's pickle."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(st.integers(0, 99), st.integers(0, 99))
    ),
    max_leaves=40,
)


@given(value=PLAIN, protocol=st.integers(2, 5))
@example(value={"frames": ["x" * 300] * 2, "pool": (0, 0)}, protocol=4)
def test_plain_data_comes_back(value, protocol):
    assert load_plain(pickle.dumps(value, protocol=protocol)) == value


def test_many_memo_slots_of_an_old_protocol_come_back():
    value = [{"action": f"alloc{number}", "addr": number} for number in range(2000)]
    assert load_plain(pickle.dumps(value, protocol=2)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_code_is_refused_and_nothing_runs(tmp_path, protocol):
    path = tmp_path / "ran"
    data = pickle.dumps({"segments": [Trap(path)], "device_traces": []}, protocol=protocol)
    with pytest.raises(VramwiseError, match="nothing was run" if protocol >= 2 else "not a pickle written by torch"):
        load_plain(data)
    assert not path.exists()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", id="stack global"),
        pytest.param(b"\x80\x02cos\nsystem\n.", id="global"),
        pytest.param(b"\x80\x02(S'x'\nios\nsystem\n.", id="inst"),
        pytest.param(b"\x80\x02\x82\x01.", id="extension"),
        pytest.param(b"\x80\x04K\x01Q.", id="persistent id"),
        pytest.param(b"\x80\x04]}b.", id="build"),
        pytest.param(pickle.dumps(sys.intern), id="function"),
        pytest.param(pickle.dumps(2 + 3j), id="object"),
        pytest.param(pickle.dumps(bytearray(b"x"), protocol=5), id="bytearray"),
    ],
)
def test_every_way_to_a_name_is_closed(data):
    with pytest.raises(VramwiseError):
        load_plain(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\x03\x04", id="zip"),
        pytest.param(b"\x80", id="one byte"),
        pytest.param(b"\x80\x04", id="no end"),
        pytest.param(b"\x80\x04.", id="no value"),
        pytest.param(b"\x80\x04uuu.", id="nothing on the stack"),
        pytest.param(b"\x80\x04K\x01K\x02a.", id="append to a number"),
        pytest.param(b"\x80\x04h\x07.", id="unknown memo"),
        pytest.param(b"\x80\x04\x8c\x01\xff.", id="bad UTF-8"),
        pytest.param(b"\x80\x04}(]N" + b"u.", id="a list as key"),
        pytest.param(pickle.dumps({1, 2}), id="set"),
        pytest.param(pickle.dumps(1 << 80), id="huge number"),
        pytest.param(b"\x80\x04\x8d" + b"\xff" * 8 + b"text.", id="text longer than any file"),
        pytest.param(pickle.dumps(("a", "b")), id="tuple of text"),
    ],
)
def test_broken_or_foreign_pickles_are_refused(data):
    with pytest.raises(VramwiseError):
        load_plain(data)


def test_every_cut_of_a_pickle_is_refused():
    data = pickle.dumps(
        {"segments": [{"address": 1 << 40, "frames": ["a" * 300]}], "device_traces": [[1.5]]}, protocol=4
    )
    for end in range(len(data) - 1):
        with pytest.raises(VramwiseError):
            load_plain(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.", id="text longer than memory"),
        pytest.param(b"\x80\x04X\xff\xff\xff\xffx.", id="text longer than the file"),
        pytest.param(b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.", id="frame longer than memory"),
        pytest.param(b"\x80\x02Nr\xff\xff\xff\x7f.", id="memo slot two billion"),
        pytest.param(b"\x80\x04)" + b"\x85" * 500_000 + b".", id="nested tuples"),
        pytest.param(b"\x80\x04)" + b"\x94h\x00\x86" * 200 + b".", id="doubling tuples"),
        pytest.param(b"\x80\x04" + b"]" * 10_000_001 + b".", id="ten million lists"),
    ],
)
def test_bombs_are_refused_at_once(data):
    started = time.process_time()
    with pytest.raises(VramwiseError):
        load_plain(data)
    assert time.process_time() - started < 2


def test_depth_alone_does_no_harm():
    depth = 200_000
    value = load_plain(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".")
    for _ in range(depth - 1):
        (value,) = value
    assert value == []


@given(st.binary(max_size=300))
@example(b"\x80\x04")
def test_random_bytes_never_crash(data):
    for start in (b"", b"\x80\x04"):
        with contextlib.suppress(VramwiseError):
            load_plain(start + data)
