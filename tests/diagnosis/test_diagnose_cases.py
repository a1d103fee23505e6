"""Every case of the table gets its cause; near misses are no failures."""

import io

import pytest
from failure_cases import CASES
from more_failure_cases import MORE

import vramwise
from failure_logs import bar, lines, oom

ALL = {**CASES, **MORE}


@pytest.mark.parametrize("name", ALL)
def test_the_cause_is_found(name):
    log, expected = ALL[name]
    diagnosis = vramwise.diagnose(io.BytesIO(log.encode()))
    if expected is None:
        assert diagnosis.verdict == "no-failure", diagnosis.sentence
    elif expected == "recovered":
        assert diagnosis.verdict == "recovered", diagnosis.sentence
    elif expected == "?":
        assert diagnosis.verdict == "unexplained", diagnosis.sentence
        assert "known" in diagnosis.sentence
        assert diagnosis.next_steps
    else:
        assert [cause.id for cause in diagnosis.causes][:1] == [expected], diagnosis.causes


def test_the_table_is_large_enough():
    assert len(ALL) == len(CASES) + len(MORE) >= 140
    assert sum(expected is None for _, expected in ALL.values()) >= 15


def test_figures_that_cannot_be_are_left_out():
    hidden = vramwise.diagnose(io.BytesIO(MORE["a container hides the process"][0].encode()))
    assert hidden.symptom.memory.this_process_bytes is None
    unlimited = vramwise.diagnose(io.BytesIO(CASES["async backend"][0].encode()))
    assert unlimited.symptom.memory.allowed_bytes is None
    assert not [note for note in unlimited.notes if "limited" in note]


def test_a_driver_that_lends_host_memory_is_noted():
    log = oom("1.00 GiB", total="8.00 GiB", allocated="12.19 GiB", pieces="500.00 MiB", free="0 bytes")
    assert "its driver used host memory" in vramwise.diagnose(io.BytesIO(log.encode())).notes[0]


def test_an_empty_log_is_said_to_be_empty():
    assert vramwise.diagnose(io.BytesIO(b"")).sentence == "No failure found: the log is empty."


def test_no_failure_is_only_found_in_a_run_that_goes_well():
    told = vramwise.diagnose(io.BytesIO(b"hello\n"))
    assert told.sentence == "Nothing in 1 line says what failed: neither an error nor a run that went well."
    assert told.next_steps
    going = vramwise.diagnose(io.BytesIO(lines(bar(3, 10), bar(4, 10)).encode()))
    assert going.sentence.startswith("No failure found in ")
