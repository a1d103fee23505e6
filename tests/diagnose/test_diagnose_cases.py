"""Every case of the table gets its cause; near misses are no failures."""

import io

import pytest
from failure_cases import CASES

import vramwise


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_found(name):
    log, expected = CASES[name]
    diagnosis = vramwise.diagnose(io.BytesIO(log.encode()))
    if expected is None:
        assert diagnosis.verdict == "no-failure", diagnosis.sentence
    elif expected == "recovered":
        assert diagnosis.verdict == "recovered", diagnosis.sentence
    elif expected == "?":
        assert diagnosis.verdict == "unexplained", diagnosis.sentence
        assert "I don't know" in diagnosis.sentence
        assert diagnosis.next_steps
    else:
        assert [cause.id for cause in diagnosis.causes][:1] == [expected], diagnosis.causes


def test_the_table_is_large_enough():
    assert len(CASES) >= 80
    assert sum(expected is None for _, expected in CASES.values()) >= 12
