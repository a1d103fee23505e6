"""Real out-of-memory failures, provoked on an H200 by bench/provoke_oom.py: log and snapshot → the known cause."""

import io
import json
from pathlib import Path

import pytest

import vramwise

FOLDER = Path(__file__).parent.parent / "data" / "diagnose" / "h200"
FILE = FOLDER / "cases.jsonl"
CASES = {
    case["name"]: case
    for case in (json.loads(line) for line in (FILE.read_text("utf-8").splitlines() if FILE.is_file() else ()))
}


@pytest.mark.skipif(not CASES, reason="no recorded failures here: run bench/provoke_oom.py on a GPU")
@pytest.mark.parametrize("name", CASES or ["none"])
def test_log_and_snapshot_give_the_cause(name):
    case = CASES[name]
    snapshot = FOLDER / f"{name}.pickle.gz"
    diagnosis = vramwise.diagnose(io.BytesIO(case["log"].encode()), snapshot=str(snapshot))
    assert diagnosis.verdict == "diagnosed", diagnosis.sentence
    assert diagnosis.causes[0].id == case["cause"], [(cause.id, cause.confidence) for cause in diagnosis.causes]


@pytest.mark.skipif(not CASES, reason="no recorded failures here: run bench/provoke_oom.py on a GPU")
@pytest.mark.parametrize("name", CASES or ["none"])
def test_the_log_alone_names_the_cause_among_the_first_three(name):
    case = CASES[name]
    diagnosis = vramwise.diagnose(io.BytesIO(case["log"].encode()))
    assert diagnosis.failed
    assert case["cause"] in [cause.id for cause in diagnosis.causes[:3]]
