"""`vramwise report`: predicted against measured, from the guard's log alone. No torch."""

import re
from dataclasses import asdict
from html.parser import HTMLParser

import pytest

from vramwise.render.train_report import render_train_report
from vramwise.training.guard.memory_log import MemoryLog
from vramwise.training.guard.samples import Reading, Sample
from vramwise.training.parent.measured import compare, read_report
from vramwise.training.plan import PredictedMemory, PredictedPhase
from vramwise.units import GIB

PREDICTED = PredictedMemory(
    peak_allocated_bytes=15 * GIB,
    peak_reserved_bytes=16 * GIB,
    outside_bytes=0,
    limit_bytes=None,
    phases=(
        PredictedPhase(step=1, phase="forward", peak_allocated_bytes=12 * GIB, peak_reserved_bytes=13 * GIB),
        PredictedPhase(step=1, phase="backward", peak_allocated_bytes=15 * GIB, peak_reserved_bytes=16 * GIB),
        PredictedPhase(step=1, phase="optimizer", peak_allocated_bytes=10 * GIB, peak_reserved_bytes=16 * GIB),
    ),
)


def write(
    folder, *, device="cuda:0 <script>alert(1)</script>", steps=5, peaks="phase", ended=True, predicted=PREDICTED
):
    with MemoryLog(folder / "memory.jsonl") as log:
        log.write(
            "decision", {"what": "attempt", "attempt": 1, "micro_batch_size": 8, "gradient_accumulation_steps": 1}
        )
        log.write("start", {"attempt": 1, "step": 0, "device": device, "device_bytes": 24 * GIB, "peaks": peaks})
        log.write("decision", {"what": "out-of-memory", "phase": "train", "step": 1, "next": "micro-batch 8 → 4"})
        start = {
            "attempt": 2,
            "step": 0,
            "max_steps": steps,
            "device": device,
            "device_bytes": 24 * GIB,
            "peaks": peaks,
        }
        log.write("start", start | {"predicted": None if predicted is None else asdict(predicted)})
        for step in range(1, steps + 1) if device else ():
            for phase, allocated, reserved in (("train", 15.3, 16.5), ("optimizer", 10.0, 16.5)):
                reading = Reading(
                    allocated_bytes=9 * GIB,
                    reserved_bytes=16 * GIB,
                    peak_allocated_bytes=int(allocated * GIB),
                    peak_reserved_bytes=int(reserved * GIB),
                    retries=0,
                )
                log.write("sample", {"attempt": 2, **Sample(step=step, phase=phase, reading=reading).to_json()})
        log.write("warning", {"attempt": 2, "rule": "memory-fragmented", "step": 3, "message": "5 GiB & more <b>"})
        if ended:
            log.write("end", {"attempt": 2, "step": steps})


def test_phases_are_compared(tmp_path):
    write(tmp_path)
    rows = {row.phase: row for row in compare(read_report(tmp_path).last)}
    assert list(rows) == ["train", "optimizer", "run"]
    assert rows["train"].predicted.allocated_bytes == 15 * GIB
    assert rows["train"].measured.allocated_bytes == int(15.3 * GIB)
    assert rows["optimizer"].measured.allocated_bytes == 10 * GIB
    assert rows["run"].predicted.reserved_bytes == 16 * GIB


def test_counters_of_the_whole_run_say_nothing_of_phases_that_did_not_raise_them(tmp_path):
    write(tmp_path, peaks="run")
    rows = {row.phase: row for row in compare(read_report(tmp_path).last)}
    assert rows["train"].measured is not None
    assert rows["optimizer"].measured is None


def test_text(tmp_path, vramwise):
    write(tmp_path)
    done = vramwise("report", tmp_path)
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert "24.0 GiB" in lines[0]
    assert "2 attempts" in lines[0]
    assert "out of memory in train at step 1 → micro-batch 8 → 4" in done.output
    [train] = [line for line in lines if line.startswith("train")]
    assert train.split() == [
        "train",
        "15.0",
        "GiB",
        "15.3",
        "GiB",
        "-2.0",
        "%",
        "16.0",
        "GiB",
        "16.5",
        "GiB",
        "-3.0",
        "%",
    ]
    assert "warning [memory-fragmented] step 3" in done.output


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names = []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)


def test_the_page_stands_alone_and_lets_nothing_in(tmp_path, vramwise):
    write(tmp_path, steps=2000)
    page = tmp_path / "report.html"
    assert vramwise("report", tmp_path, "--html", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.names
    assert "b" not in tags.names
    assert tags.names.count("polyline") == 4  # reserved and allocated, for a wide page and for a phone
    assert not re.search(r"(src|href)=|https?://|@import|url\(", text)
    assert "Reserved 16.5 GiB at most; predicted 16.0 GiB (-3.0 %); 1 out-of-memory, recovered" in text
    for points in re.findall(r'<polyline class="reserved" points="([^"]+)"', text):
        assert 300 < len(points.split()) <= 700
        assert all(0 <= float(y) <= 320 for _, y in (point.split(",") for point in points.split()))


def test_a_run_without_a_gpu(tmp_path, vramwise):
    write(tmp_path, device=None, predicted=None)
    done = vramwise("report", tmp_path, "--html", tmp_path / "r.html")
    assert "no GPU was used: nothing was measured" in done.output
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "No GPU was used" in page
    assert "What happened" in page
    assert "Nothing unusual" not in page
    assert "<table" not in page


def test_a_run_that_is_going_on(tmp_path, vramwise):
    write(tmp_path, ended=False)
    with (tmp_path / "memory.jsonl").open("a") as file:
        file.write('{"kind":"sample","st')
    done = vramwise("report", tmp_path)
    assert "measured to step 5 of 5" in done.output
    assert "1 line(s) of the log were cut off" in done.output


@pytest.mark.parametrize(
    "content", [None, "", '{"kind":"decision"}\n', '{"kind":"start"}\n{"kind":"sample","step":1}\n']
)
def test_nothing_to_report(tmp_path, vramwise, content):
    if content is not None:
        (tmp_path / "memory.jsonl").write_text(content)
    assert vramwise("report", tmp_path).exit_code == 2


def write_rank(folder, rank, reserved, attempt=2, predicted=PREDICTED):
    with MemoryLog(folder / f"memory.rank{rank}.jsonl") as log:
        start = {"attempt": attempt, "step": 0, "device": f"cuda:{rank}", "device_bytes": 24 * GIB, "peaks": "phase"}
        log.write("start", start | {"predicted": None if predicted is None else asdict(predicted)})
        reading = Reading(
            allocated_bytes=9 * GIB,
            reserved_bytes=int(reserved * GIB),
            peak_allocated_bytes=15 * GIB,
            peak_reserved_bytes=int(reserved * GIB),
            retries=0,
        )
        log.write("sample", {"attempt": attempt, **Sample(step=1, phase="train", reading=reading).to_json()})


def test_several_ranks_are_one_report_of_the_fullest(tmp_path):
    """Rank 3 may have been on another node: all write into the folder that they share."""
    write(tmp_path)
    write_rank(tmp_path, 1, 16.0)
    write_rank(tmp_path, 2, 15.0)
    write_rank(tmp_path, 3, 18.0, predicted=None)
    report = read_report(tmp_path)
    assert [one.rank for one in report.ranks] == [0, 1, 2, 3]
    whole = report.compared[-1]
    assert whole.measured.reserved_bytes == 18 * GIB
    assert whole.predicted.reserved_bytes == 16 * GIB
    text = "\n".join(render_train_report(report))
    assert "4 ranks: the fullest is rank 3, shown below; the others reserved 15.0 GiB to 16.5 GiB" in text


def test_ranks_that_were_killed_early_do_not_hide_the_others(tmp_path):
    write(tmp_path)
    (tmp_path / "memory.rank1.jsonl").write_bytes(b'{"kind": "sta')
    write_rank(tmp_path, 2, 30.0, attempt=1)  # of the attempt before
    (tmp_path / "memory.rankx.jsonl").write_text("")
    report = read_report(tmp_path)
    assert [one.rank for one in report.ranks] == [0]
    assert report.compared[-1].measured.reserved_bytes == int(16.5 * GIB)
    assert report.torn


def test_attempts_are_counted_through_a_resume(tmp_path):
    """Each start of `vramwise train` begins with its first attempt again."""
    write(tmp_path)
    with MemoryLog(tmp_path / "memory.jsonl") as log:
        for resumed in (None, "checkpoint-2"):
            batch = {"micro_batch_size": 8, "gradient_accumulation_steps": 1}
            log.write("decision", {"what": "attempt", "attempt": 1, **batch, "resume_from": resumed})
    text = "\n".join(render_train_report(read_report(tmp_path)))
    numbers = re.findall(r"attempt (\d+):", text)
    assert numbers == [str(one) for one in range(1, len(numbers) + 1)]
    assert len(numbers) >= 2
