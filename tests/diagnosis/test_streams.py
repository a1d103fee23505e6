"""Logs of any size and any bytes: bounded memory, right line numbers, no crash, no hang."""

import io
import time
import tracemalloc

import pytest
from failure_logs import bar, losses, oom
from hypothesis import given, settings
from hypothesis import strategies as st

import vramwise
from vramwise.diagnosis.read.log import read_log
from vramwise.diagnosis.read.stream import CHUNK_BYTES

PIECES = [
    oom().encode(),
    b"Traceback (most recent call last):\n",
    b'  File "/a/b/trainer.py", line 3, in evaluate\n',
    bar(3, 400).encode(),
    losses(1, 3).encode(),
    "│ /a/b/trainer.py:7 in evaluate │\n│ ❱ 7 │ x = 1 │\n".encode(),
    b"File /a/b.py:3, in Model.forward(self)\n---> 3 y = x\n",
    b"expected Half but found Float",
    b"[rank0]: ",
    b"\x1b[31m",
    b"\xff\xfe\x00",
    b"RuntimeError: ",
    b"CUDA out of memory. Tried to allocate ",
    b"99999999999999 GiB",
    b"saved metadata: {'shape': torch.Size([1]), 'dtype': torch.float32",
    b"exitcode: -9",
    b"\n",
    b"\r",
    b"{'memory/allocated (GiB)': 1e9}",
    b"micro_batch_size: 99999999999999999999\n",
]


class Endless(io.RawIOBase):
    """The same piece again and again, then an end."""

    def __init__(self, piece, times, end):
        self.parts = [piece, times, end]

    def read(self, size=-1):
        piece, times, end = self.parts
        if times:
            self.parts[1] -= 1
            return piece
        self.parts[2] = b""
        return end


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=30).map(b"".join))
def test_any_bytes_are_read(data):
    diagnosis = vramwise.diagnose(io.BytesIO(data))
    assert diagnosis.sentence
    assert read_log(io.BytesIO(data), "x").size_bytes == len(data)


@pytest.mark.parametrize(
    "filler",
    [
        (losses(1, 60, memory=lambda step: 3 + step / 100) + "\n").encode() * 150,
        b"\r 10%|#         | 40/400 [00:10<05:00,  1.21s/it]" * 20000,
        b"x" * CHUNK_BYTES,
        b"Error " * 150_000 + b"\n",
        b'  File "/a/b.py", line 3, in forward\n' * 8000,
        b"CUDA out of memory. Tried to allocate\n" * 8000,
        b"\x1b[" * 400_000,
        b"[" * CHUNK_BYTES,
        b"'" * 100_000 + b"Error: " + b"\n",
    ],
    ids=[
        "figures",
        "one endless bar",
        "one endless line",
        "errors",
        "frames",
        "oom mentions",
        "escapes",
        "brackets",
        "quotes",
    ],
)
def test_memory_does_not_grow_with_the_log(filler):
    tail = b"\n" + oom("2.00 GiB", allocated="15.00 GiB", pieces="7.30 GiB").encode() + b"\n"
    read_log(io.BytesIO(filler + tail), "warm")
    tracemalloc.start()
    start = time.process_time()
    facts = read_log(Endless(filler, 6, tail), "endless")
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 1024**2 + 4 * len(filler)
    assert seconds < 60
    assert facts.size_bytes == 6 * len(filler) + len(tail)


def test_line_numbers_are_those_of_an_editor():
    log = "\n".join(f"line {n}" + "\rbar" * (n % 3) for n in range(1, 200_001)) + "\n" + oom() + "\nend\n"
    facts = read_log(io.BytesIO(log.encode()), "x")
    assert facts.symptoms[0].quote.line == 200_001
    assert facts.lines == 200_002


@pytest.mark.parametrize("offset", range(-40, 41, 5))
def test_a_failure_across_the_edge_of_a_piece(offset):
    filler = b"y" * 99 + b"\n"
    count = (CHUNK_BYTES + offset * 10) // len(filler)
    log = filler * count + b"z" * (offset % 7) + b"\n" + oom().encode() + b"\n" + filler * 300
    facts = read_log(io.BytesIO(log), "x")
    assert [(symptom.kind, symptom.quote.line) for symptom in facts.symptoms] == [("cuda-oom", count + 2)]
    assert facts.symptoms[0].memory.requested_bytes == 2 * 1024**3


def test_a_failure_inside_an_endless_line():
    log = (
        b"x" * (3 * CHUNK_BYTES)
        + b" RuntimeError: "
        + oom().encode()[len("torch.OutOfMemoryError: ") :]
        + b"x" * CHUNK_BYTES
    )
    assert [symptom.kind for symptom in read_log(io.BytesIO(log), "x").symptoms] == ["cuda-oom"]


def test_utf_16_as_powershell_writes_it():
    log = losses(1, 3) + "\n" + oom() + "\n"
    assert read_log(io.BytesIO(log.encode("utf-16")), "x").symptoms[0].kind == "cuda-oom"


def test_ranks_are_told_apart():
    facts = read_log(io.BytesIO(f"[rank2]: {oom(gpu='2')}\n[rank0]: {oom()}\n".encode()), "x")
    assert [symptom.rank for symptom in facts.symptoms] == [2, 0]
    assert facts.ranks == {0, 2}
    assert [symptom.memory.device for symptom in facts.symptoms] == [2, 0]


@pytest.mark.parametrize(
    ("log", "count"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\r\nb\r\n", 2), (b"\n" * 70_000, 70_000)]
)
def test_lines_are_counted(log, count):
    assert read_log(io.BytesIO(log), "x").lines == count
