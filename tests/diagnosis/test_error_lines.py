"""Lines that real failures printed (the source names the report): each is recognised with its cause."""

import io
import json
from pathlib import Path

import pytest

import vramwise
from vramwise.diagnosis import causes
from vramwise.trainers.rulebook import all_rules

LINES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "diagnose" / "error_lines.jsonl")
    .read_text("utf-8")
    .splitlines()
]
WRAPPERS = {
    "alone": "{}",
    "rank": "[rank1]: {}",
    "torchrun": "[default0]:{}",
    "colour": "\x1b[31m{}\x1b[0m",
    "after a bar": "\r  0%|          | 0/400 [00:00<?, ?it/s]\n{}",
    "windows": "{}\r",
    "not utf-8": "caf\udce9\n{}",
}


@pytest.mark.parametrize("number", range(len(LINES)))
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_real_line_is_recognised(number, wrapper):
    case = LINES[number]
    log = "\n".join(WRAPPERS[wrapper].format(line) for line in case["log"].split("\n")) + "\n"
    diagnosis = vramwise.diagnose(io.BytesIO(log.encode("utf-8", "surrogateescape")))
    assert diagnosis.verdict == "diagnosed"
    assert diagnosis.causes[0].id == case["cause"]
    assert diagnosis.causes[0].remedies


def test_causes_that_rules_explain_exist_and_have_one_rule():
    explained = [cause for rule in all_rules() for cause in rule.explains]
    folder = Path(causes.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in (*folder.glob("*.py"), *folder.glob("*.json")))
    assert explained
    assert len(explained) == len(set(explained))
    assert [cause for cause in explained if f'"{cause}"' not in source] == []


def test_a_remedy_for_every_cause():
    from vramwise.diagnosis import advice
    from vramwise.diagnosis.causes import known as known_causes

    causes = {known.cause for known in known_causes._known().values()}
    assert [cause for cause in causes if not advice.rows_for(cause)] == []


def test_every_change_of_a_cause_is_listed_and_built():
    from vramwise.diagnosis import advice
    from vramwise.variants import changes

    stored = advice._stored()
    named = {name for cause in stored["causes"].values() for name in cause.get("changes", ())}
    assert named <= set(stored["changes"])
    assert [name for name in named if not callable(getattr(changes, stored["changes"][name]["change"]))] == []
