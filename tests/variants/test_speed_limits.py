"""torch counts a whole request against a limit of its own, the card only what is missing: seen on a measured run."""

import json
import tempfile
from pathlib import Path

import pytest

from axolotl_memory import subject_of
from vramwise.facts.gpus import find_gpu
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import RETRIES, weighed

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
NAME = "gemma3_gemma-3-1b-qlora_rtx-4090@21"


@pytest.fixture(scope="module")
def row():
    lines = (ROOT / "tests/data/truth/speed-contact.jsonl").read_text().splitlines()
    return next(row for row in map(json.loads, lines) if row["name"] == NAME)


@pytest.fixture(scope="module")
def subject(row):
    with tempfile.TemporaryDirectory() as folder:
        return subject_of(row, Path(folder))


def test_the_limited_run_retries_as_often_as_measured(row, subject):
    prediction = subject.prediction(steps=len(row["steps"]), limit_bytes=row["limit_mib"] * MIB)
    assert prediction.needs.highest_reserved_bytes < row["limit_mib"] * MIB
    assert prediction.shown.retries == row["retries"] == 5
    ends = [phase.peak_reserved_bytes / MIB for phase in prediction.report.phases if phase.phase == "optimizer"]
    assert ends == [step[1] for step in row["steps"]]


def test_no_answer_of_a_search_retries(row, subject):
    tried = Attempt(changes=(), prediction=subject.prediction(limit_bytes=row["limit_mib"] * MIB))
    assert weighed(tried, None, None).fell == RETRIES


def test_a_card_of_that_size_counts_what_is_missing(subject):
    there = subject.on_card(find_gpu("rtx-4090")).prediction()
    assert there.report.out_of_memory is None
    assert there.report.retries == 0


def test_plain_segments_are_counted_alike_by_both(row, subject):

    plain = subject.with_run(subject.run.changed(allocator=""))
    needs = plain.prediction().needs.highest_reserved_bytes
    assert plain.prediction(limit_bytes=needs).report.retries == 0
    assert plain.prediction(limit_bytes=needs - MIB).report.retries > 0
