"""Predictions for an attempt: with the lengths of the real rows, and for a restart with other batches."""

import pytest

from tiny_runs import make_folder, prepared, write_config
from vramwise.training.parent import refusing
from vramwise.training.parent import run as verb
from vramwise.training.parent.expected import first_and_widest, sentence, with_real_lengths
from vramwise.training.plan import TrainPlan
from vramwise.training.worker.main import run_of


@pytest.fixture(autouse=True)
def _everything_installed(monkeypatch):
    monkeypatch.setattr(refusing, "missing", lambda modules: [])


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


def test_the_first_groups_and_the_widest():
    lengths = [1, 2, 3, 4, 9, 1, 5, 5]
    assert first_and_widest(lengths, 2, 10, first=1) == ([1, 2, 9, 1], 2)
    assert first_and_widest(lengths, 2, 2, first=1) == ([1, 2, 3, 4], 2)
    assert first_and_widest(lengths, 2, 10) == (lengths, 4)
    assert first_and_widest([9, 9, 1, 1], 2, 10, first=1) == ([9, 9], 1)
    assert first_and_widest([1, 1, 1], 2, 10) == ([1, 1, 1], 2)


def predicted(path, lengths, eval_lengths=(), **options):
    """As in the worker: everything comes from the plan's file."""
    plan = TrainPlan.from_json(prepared(path, target={"gpu": "H200"}, **options).plan.to_json())
    return plan, with_real_lengths(run_of(plan), plan, lengths, eval_lengths, max_steps=100)


def test_padded_rows_need_what_was_predicted_without_them(folder):
    path = write_config(folder, pad_to_sequence_len=True)
    plan, prediction = predicted(path, [64, 63] * 8)
    assert prediction.needs.peak_reserved_bytes == plan.predicted.peak_reserved_bytes
    assert prediction.needs.peak_allocated_bytes == plan.predicted.peak_allocated_bytes


def test_shorter_rows_need_less_and_the_widest_counts_wherever_it_comes(folder):
    path = write_config(folder, sequence_len=2048)
    plan, short = predicted(path, [100] * 400)
    _, late = predicted(path, [100] * 399 + [2000])
    assert short.needs.peak_allocated_bytes < late.needs.peak_allocated_bytes
    assert sentence(late, plan.predicted).startswith("memory with the lengths of this data: ")


def test_evaluation_rows_count_too(folder):
    path = write_config(folder, sequence_len=2048, val_set_size=0.1, eval_steps=2, eval_batch_size=16)
    _, short = predicted(path, [100] * 40, [100] * 16)
    _, long = predicted(path, [100] * 40, [2000] * 16)
    phases = {one.phase for one in long.needs.phases}
    assert "eval" in phases
    assert short.needs.peak_allocated_bytes < long.needs.peak_allocated_bytes


def test_a_restart_is_predicted_with_its_own_batches(folder, monkeypatch):
    """`train` hands the supervisor a prediction for every restart."""
    path = write_config(folder, sequence_len=2048, pad_to_sequence_len=True)
    given = {}
    monkeypatch.setattr(
        "vramwise.training.parent.supervise.supervise", lambda plan, **more: given.update(more, plan=plan) or 0
    )
    monkeypatch.setattr(verb, "prepare", lambda path, options: prepared(path, target={"gpu": "H200"}))
    assert verb.train(str(path), say=lambda line: None) == 0
    first = given["plan"]
    again = given["predict"](first.restarted(resume_from=None, micro_batch_size=2, gradient_accumulation_steps=2))
    assert 0 < again.peak_allocated_bytes < first.predicted.peak_allocated_bytes
    assert again.limit_bytes == first.predicted.limit_bytes


def test_without_a_card_a_restart_has_none_either(folder, monkeypatch):
    path = write_config(folder)
    known = prepared(path)
    assert verb.prediction_of_restart(known, known.plan) is None


def test_a_prediction_that_was_too_low_has_no_say_about_a_restart(folder):
    """Half is tried then, not the next smaller size that it would call fitting just as well."""
    path = write_config(folder, sequence_len=2048, pad_to_sequence_len=True)
    known = prepared(path, target={"gpu": "H200"})
    smaller = known.plan.restarted(resume_from=None, micro_batch_size=2, gradient_accumulation_steps=2)
    needs = known.prediction.needs.peak_reserved_bytes
    for room, answer in ((needs + 1, None), (needs - 1, True), (needs // 4, False)):
        facts = {"reserved_bytes": room, "device_free_bytes": 0}
        assert verb.would_fit(known, known.plan, smaller, facts) is answer
