"""`vramwise report` on logs that a kill, a full disk or a stranger left: a report of what is there, or one sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import VramwiseError
from vramwise.render.train_report import render_train_html, render_train_report
from vramwise.training.guard.memory_log import parse_log
from vramwise.training.parent.measured import make_report

PEAKS = {"peak_allocated_bytes": 5, "peak_reserved_bytes": 6}
START = {
    "kind": "start", "attempt": 1, "step": 0, "max_steps": 9, "device": "cuda:0", "device_bytes": 2**34, "peaks": "phase",
    "predicted": {**PEAKS, "phases": [{"step": 1, "phase": "forward", **PEAKS}]},
}  # fmt: skip
SAMPLE = {
    "kind": "sample", "step": 1, "phase": "train", "width": None, "allocated_bytes": 1, "reserved_bytes": 2,
    "retries": 0, "device_free_bytes": None, **PEAKS,
}  # fmt: skip
WARNING = {"kind": "warning", "rule": "memory-fragmented", "step": 1, "message": "m"}
DECISION = {"kind": "decision", "what": "advice", "attempt": 1, "advice": ["a"]}
WHOLE = (START, SAMPLE, WARNING, DECISION, {"kind": "end", "step": 1})


def outcome(lines):
    """Rendered both ways, or the sentence."""
    try:
        report = make_report(parse_log(lines), "out")
    except VramwiseError as error:
        return str(error)
    assert render_train_html(report)
    return "\n".join(render_train_report(report))


def logged(*records):
    return [json.dumps(record).encode() + b"\n" for record in records]


def test_whole():
    assert "memory-fragmented" in outcome(logged(*WHOLE))


@pytest.mark.parametrize("record", WHOLE, ids=lambda record: record["kind"])
@pytest.mark.parametrize("value", [..., None, "x", -1, 1.5, True, [], {}, [[]], 10**400, float("nan"), float("inf")])
def test_any_field_missing_or_of_another_type(record, value):
    for name in record:
        changed = {key: value if key == name else old for key, old in record.items() if key != name or value is not ...}
        lines = logged(*(changed if one is record else one for one in WHOLE))
        assert outcome(lines)


def test_every_length_of_a_cut():
    text = b"".join(logged(*WHOLE))
    for length in range(len(text)):
        assert outcome(text[:length].splitlines(keepends=True))


def test_what_is_cut_short_is_counted_and_the_rest_shown():
    said = outcome(logged(START, SAMPLE, {"kind": "sample", "step": 2}, {"kind": "warning"}))
    assert "measured to step 1 of 9" in said
    assert "2 line(s)" in said


@pytest.mark.parametrize("phase", [{}, 3, {**PEAKS, "phase": []}, {**PEAKS, "phase": None}])
def test_a_predicted_phase_that_is_not_all_there_is_left_out(phase):
    assert "train" in outcome(logged({**START, "predicted": {**PEAKS, "phases": [phase]}}, SAMPLE))


def test_figures_that_are_all_nought_end():
    nothing = {**SAMPLE, "peak_allocated_bytes": 0, "peak_reserved_bytes": 0}
    assert outcome(logged({**START, "device_bytes": 0, "predicted": None}, nothing))


def test_deep_nesting_is_a_torn_line():
    assert "1 line(s)" in outcome([*logged(START, SAMPLE), b"[" * 100_000 + b"\n"])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*START, *SAMPLE]), inner, max_size=4),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(WHOLE), st.sampled_from([*START, *SAMPLE, *WARNING, *DECISION]), anything)))
def test_anything_in_any_field(changes):
    lines = logged(*({**record, name: value} for record, name, value in changes), *WHOLE)
    assert outcome(lines)
