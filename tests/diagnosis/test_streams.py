"""Logs of any size and any bytes: bounded memory, right line numbers, no crash, no hang."""

import io
import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vramwise
from failure_logs import bar, losses, oom
from installed import NOT_THIS_SYSTEM
from nightly import examples
from vramwise.diagnosis.read.log import WORDS, read_log
from vramwise.diagnosis.read.oom_figures import read_memory_text
from vramwise.diagnosis.read.prefixes import unboxed
from vramwise.diagnosis.read.stream import CHUNK_BYTES, MOST_HITS, SAMPLES, Totals, interesting_lines
from vramwise.errors import VramwiseError
from vramwise.render.diagnosis_json import render_json
from vramwise.render.diagnosis_text import render_diagnosis

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


@settings(max_examples=examples(300))
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=30).map(b"".join))
def test_any_bytes_are_read(data):
    diagnosis = vramwise.diagnose(io.BytesIO(data))
    assert diagnosis.sentence
    assert read_log(io.BytesIO(data), "x").size_bytes == len(data)


@pytest.mark.sampled(3)
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


def every_line(text, size_bytes):
    """A log that consists of one line, numbered."""
    lines = []
    size = number = 0
    while size < size_bytes:
        number += 1
        lines.append(text.replace("{n}", str(number)).encode() + b"\n")
        size += len(lines[-1])
    return b"".join(lines)


EVERY_LINE = [
    "Error",
    "Error {n}",
    "ValueError: sample {n} is empty",
    "Killed",
    "exitcode: -9",
    "│ ",
    '  File "/a/b.py", line {n}, in f',
    "micro_batch_size: {n}",
    "*****",
    "{'eval_loss': {n}}",
    "Saving model checkpoint {n}",
    "it/s",
    oom().strip(),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("line", EVERY_LINE)
@pytest.mark.parametrize("ending", [b"\n", b"\r", b" "])
def test_a_log_where_every_line_matches_is_looked_at_in_parts(line, ending):
    data = every_line(line, 2 * CHUNK_BYTES).replace(b"\n", ending)
    looked_at = sum(1 for _ in interesting_lines(io.BytesIO(data), WORDS, Totals()))
    assert looked_at <= 3 * (2 * MOST_HITS + 16 * SAMPLES)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("noise", ["ValueError: sample {n} is empty", "Error {n}", "UserWarning: rror: Killed {n}"])
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (oom(), "cuda-oom"),
        ("RuntimeError: expected scalar type Half but found Float\n", "mixed-operands"),
        ("ValueError: Attempting to unscale FP16 gradients.\n", "unscale-fp16"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.\n", "host-oom-killer"),
    ],
)
def test_a_failure_among_lines_that_all_say_error(noise, failure, kind):
    data = every_line(noise, 600_000)
    facts = read_log(io.BytesIO(data + failure.encode() + data), "x")
    assert kind in {symptom.kind for symptom in facts.symptoms}


def test_the_traceback_of_a_failure_among_thousands_of_others():
    other = b'  File "/a/b.py", line 1, in other\n    x = 1\n'
    own = b'Traceback (most recent call last):\n  File "/a/trainer.py", line 3, in evaluate\n    y = f(x)\n'
    facts = read_log(io.BytesIO(other * 20_000 + own + oom().encode() + other * 20_000), "x")
    assert [frame.function for frame in facts.symptoms[0].frames] == ["evaluate"]


def test_a_stream_that_gives_little_at_a_time_is_searched_once():
    class Trickle(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 100))

    data = every_line("Error {n}", 500_000)
    whole, trickled = (
        [raw.number for raw in interesting_lines(stream, WORDS, Totals())]
        for stream in (io.BytesIO(data), Trickle(data))
    )
    assert trickled == whole


@pytest.mark.parametrize(
    "middle", [" " * 200_000, "│ " * 100_000, "| " * 100_000, "\u00a0" * 100_000, "\t\r" * 100_000]
)
def test_blanks_take_no_time(middle):
    start = time.process_time()
    read_log(io.BytesIO(f"Error{middle}x\nError{middle}\n".encode()), "x")
    assert time.process_time() - start < 2


def test_blanks_and_boxes_are_taken_off():
    for space in map(chr, [*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x3000]):
        assert unboxed(f"│{space}❱ a b{space}┃║|{space}") == "a b"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
@pytest.mark.skipif(not Path("/dev/zero").exists(), reason=NOT_THIS_SYSTEM)
def test_a_device_is_no_log(device):
    with pytest.raises(VramwiseError, match="is a device, not a log"):
        vramwise.diagnose(device)


def test_a_pipe_is_a_log(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(oom().encode()))
    writer.start()
    assert vramwise.diagnose(str(tmp_path / "pipe")).failed
    writer.join()


FIGURES_THAT_ARE_NONE = [
    "has a total capacity of 0 bytes of which 0 bytes is free",
    "has a total capacity of 0 GiB of which 1.00 GiB is free",
    "has a total capacity of 999999999999999 TiB of which 1.00 GiB is free",
    "has a total capacity of 1.2.3 GiB of which 1.2.3 GiB is free",
    "has a total capacity of ².00 GiB of which ٣.00 GiB is free",
    "has a total capacity of 24.00 GiB of which 1.00 GiB is free; 0 bytes allowed",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("figures", FIGURES_THAT_ARE_NONE)
@pytest.mark.parametrize("size", ["2.00 GiB", "1.2.3 GiB", "0 bytes", "² GiB", "999999999999999 TiB", "inf GiB"])
def test_figures_that_cannot_be(figures, size, tmp_path):
    (tmp_path / "c.yml").write_text("base_model: TinyLlama/TinyLlama-1.1B-Chat-v1.0\nmicro_batch_size: 1\n")
    (tmp_path / "x.log").write_text(
        f"Total optimization steps = ²\nmicro_batch_size: ²\neval_batch_size: ²\nvocab_size: {'9' * 100}\n"
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 {figures}. Of the allocated memory "
        f"{size} is allocated by PyTorch, and {size} is reserved by PyTorch but unallocated.\n",
        encoding="utf-8",
    )
    diagnosis = vramwise.diagnose(tmp_path / "x.log", config=tmp_path / "c.yml")
    assert diagnosis.symptom.kind == "cuda-oom"
    total = diagnosis.symptom.memory.total_bytes
    assert total is None or total == 24 * 1024**3
    assert render_diagnosis(diagnosis)
    assert render_json(diagnosis)


def test_a_number_with_two_points_is_not_read_in_part():
    memory = read_memory_text(
        "CUDA out of memory. 1.2.3 GiB already allocated; 5.0 GiB reserved in total by PyTorch", ""
    )
    assert memory.allocated_bytes is None
