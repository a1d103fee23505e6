"""What `fit` says beside the best: where nothing fits, the largest of something, and where others ask it."""

from dataclasses import replace
from functools import cache

import pytest
from small_runs import FULL, LORA, fitted, small

from vramwise.errors import VramwiseError
from vramwise.training.parent.run import remedies
from vramwise.variants.axes import AXES
from vramwise.variants.effort import DIAGNOSIS, REMEDY
from vramwise.variants.search.book import REFUSED
from vramwise.verbs.drafts import SubjectWorkshop
from vramwise.verbs.fitting.fastest import fit_subject as fit
from vramwise.verbs.fitting.fastest import search_of
from vramwise.verbs.fitting.ways_out import fit_command, quick_way_out, way_out

# What saves too little to make it fit.
AXES_OF_TWO = tuple(axis for axis in AXES if axis.name in ("optimizer", "allocator") and not axis.allow)


@pytest.fixture(scope="module")
def nothing_fits():
    return fitted(LORA, 1.55)[1]


def test_where_nothing_fits_the_closest_says_by_how_much(nothing_fits):
    assert nothing_fits.best is None
    assert nothing_fits.closest.spare_bytes < 0
    assert nothing_fits.closest.reserved_bytes < nothing_fits.original.reserved_bytes
    assert nothing_fits.closest.prediction.fits is False
    assert nothing_fits.original.prediction.fits is False
    assert nothing_fits.simulated <= 6


def test_where_nothing_fits_words_that_would_help_are_predicted(nothing_fits):
    ((word, candidate),) = nothing_fits.opened
    assert word == "qlora"
    assert candidate.fits
    assert candidate.run.loading.quantization == "4bit"


def test_a_run_that_does_not_fit_is_told_what_fit_would_write():
    _, found = fitted(LORA, 4)
    out = way_out(small(LORA, 4), most=DIAGNOSIS)
    assert out.attempt.edits == found.best.attempt.edits
    assert out.allow == ()
    assert out.command == "vramwise fit config.yml --gpu 4096MiB"


@pytest.mark.parametrize(("text", "gib", "allow"), [(LORA, 4, ()), (FULL, 7, ()), (FULL, 2, ("lora",))])
def test_what_is_tried_first_was_simulated_and_fits(text, gib, allow):
    subject = small(text, gib)
    out = quick_way_out(subject)
    assert out.attempt.fits
    assert out.allow == allow
    assert subject.with_document(out.attempt.document).prediction().fits
    assert subject.effort.leaves(2 * REMEDY)


def test_what_does_not_fit_by_any_first_try_is_a_command():
    out = quick_way_out(small(LORA, 1.2))
    assert out is None or out.attempt is None


@pytest.mark.parametrize(("named", "words"), [("rows.jsonl", " --data rows.jsonl"), ("", " --data ''"), (None, "")])
def test_the_command_asks_about_the_same_data(named, words):
    subject = small(LORA, 4)
    subject = replace(subject, data=replace(subject.data, named=named))
    assert fit_command(subject) == f"vramwise fit config.yml --gpu 4096MiB{words}"


def test_what_becomes_of_a_run_on_the_card_is_open_until_asked():
    """Unless its tensors alone are too much: no cache that is given back makes room for them."""
    for gib, runs, expected in ((5, True, None), (4, False, False)):
        subject = small(LORA, gib)
        roughly, asked = subject.prediction(on_card=False), subject.prediction()
        assert (roughly.fits, asked.fits) == (expected, expected)
        assert (asked.report.out_of_memory is None) == runs
        assert roughly.needs == asked.needs


def test_a_refused_variant_still_stands_for_those_that_need_more(monkeypatch):
    monkeypatch.setattr(SubjectWorkshop, "refusal", lambda self, attempt: "no")
    search = search_of(SubjectWorkshop(subject=small(LORA, 2.2)), AXES_OF_TWO)
    larger = next(iter(search.book.space.around(search.book.space.start, 0)))
    assert search.book.judged(larger).fell == REFUSED
    assert search.book.out_of_memory(larger)
    assert search.book.simulated == 1


def test_what_is_not_certain_in_a_few_tries_is_not_named(monkeypatch):
    monkeypatch.setattr("vramwise.verbs.fitting.ways_out.SIMULATIONS_OF_A_REMEDY", 1)
    out = way_out(small(LORA, 1.9))
    assert out.attempt is None
    assert out.command.startswith("vramwise fit ")


def test_a_run_that_fits_needs_no_way_out():
    assert way_out(small(LORA, 24)) is None


def test_training_is_offered_what_keeps_its_result():
    found = remedies(small(FULL, 7))
    assert found[0].fits
    assert all(change.effect != "changes" for one in found for change in one.changes)


@cache
def largest(key, *keep):
    return fit(small(LORA, 6), maximise=key, keep=keep).best


def test_what_has_no_largest_value_is_refused():
    with pytest.raises(VramwiseError, match="choose one of micro_batch_size, sequence_len, lora_r, model"):
        fit(small(LORA, 6), maximise="gradient_accumulation_steps")


def test_the_largest_value_uses_what_may_change():
    combined = largest("sequence_len")
    kept = largest("sequence_len", "micro_batch_size", "gradient_checkpointing", "optimizer")
    assert len(combined.edits) > 1
    assert combined.run.shapes.sequence_len > kept.run.shapes.sequence_len


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("key", "step"), [("sequence_len", 64), ("lora_r", None), ("micro_batch_size", 1)])
def test_the_largest_that_fits_is_the_last_that_does(key, step):
    subject, best = small(LORA, 6), largest(key)
    value = best.document.values[key]
    assert best.fits
    assert not fits_with(subject, key, value * 2 if step is None else value + step)


def fits_with(subject, key, value):
    text = subject.document.text
    line = next(line for line in text.splitlines() if line.startswith(f"{key}:"))
    changed = small(text.replace(line, f"{key}: {value}"), 6)
    prediction = changed.prediction()
    margin = prediction.needs.highest_reserved_bytes * prediction.margin.more
    return prediction.needs.highest_reserved_bytes + margin <= prediction.capacity_bytes


def test_the_largest_model_of_a_family():
    subject = small(LORA.replace("Llama-3.2-1B", "Llama-3.2-3B"), 24, layers=28)
    found = fit(subject, maximise="model")
    assert found.best.fits
    assert found.considered >= 3
    assert found.best.run.base_model.startswith("meta-llama/Llama-3")


def test_where_weights_alone_are_too_much_nothing_is_searched(monkeypatch):
    monkeypatch.setattr("vramwise.verbs.fitting.ways_out.search_of", lambda *_: pytest.fail("searched"))
    assert way_out(small(LORA, 0.4)) is None
