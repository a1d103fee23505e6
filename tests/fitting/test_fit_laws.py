"""What holds for every answer of `fit`, whatever the config and the card."""

from dataclasses import replace

import pytest
from small_runs import FULL, LORA, fitted, small, written

from vramwise.types import Severity
from vramwise.units import GIB
from vramwise.variants.axes import AXES
from vramwise.variants.search.result import weighed
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.drafts import SubjectWorkshop
from vramwise.verbs.fitting.fastest import fit_subject as fit
from vramwise.verbs.fitting.fastest import search_of

CASES = [(LORA, 2.2), (FULL, 5.0)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0][12:20]}-{case[1]}")
def answered(request):
    return fitted(*request.param)


def results(found):
    return [one for one in (found.best, *found.alternatives) if one is not None]


@pytest.mark.sampled(2)
def test_every_result_keeps_the_effective_batch(answered):
    subject, found = answered
    assert found.best is not None
    assert {one.run.batch.effective_batch_size for one in results(found)} == {subject.run.batch.effective_batch_size}
    assert {one.run.shapes.sequence_len for one in results(found)} == {subject.run.shapes.sequence_len}


def test_every_result_passes_check_and_is_predicted_to_fit(answered):
    subject, found = answered
    known = {one.rule for one in check_subject(subject, Policy()).findings if one.severity is Severity.ERROR}
    for one in results(found):
        report = check_subject(subject.with_document(one.document).with_run(one.run), Policy(predicts=True))
        errors = {finding.rule for finding in report.findings if finding.severity is Severity.ERROR}
        assert errors <= known
        assert report.prediction.fits is True
        assert report.prediction.report.retries == 0
        assert report.prediction.needs.highest_reserved_bytes + one.margin_bytes <= report.prediction.capacity_bytes


def test_what_is_written_is_what_was_predicted(answered):
    subject, found = answered
    again = subject.with_document(found.best.document)
    assert again.run.changed(
        allocator=found.best.run.allocator.settings, origins={}, config=found.best.run.config
    ) == replace(found.best.run, origins={})


def test_the_answer_fitted_again_stays(answered):
    subject, found = answered
    again = fit(subject.with_document(found.best.document).with_run(found.best.run))
    assert again.best.changes == ()


def test_alternatives_are_a_frontier(answered):
    _, found = answered
    pairs = [(one.seconds, one.reserved_bytes) for one in results(found)]
    assert pairs == sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    assert [reserved for _, reserved in pairs] == sorted({reserved for _, reserved in pairs}, reverse=True)


@pytest.mark.sampled(2)
def test_the_same_answer_every_time(answered):
    subject, found = answered
    afresh = small(subject.document.text, subject.target.gpu.memory_bytes / GIB)
    assert [written(one) for one in results(fit(afresh))] == [written(one) for one in results(found)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "sizes"), [(LORA, (1.75, 2.2, 4)), (FULL, (3.5, 5.0))])
def test_more_memory_is_never_slower(text, sizes):
    seconds = [fitted(text, gib)[1].best.seconds for gib in sizes]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "gib", "key"), [(LORA, 3.0, "gradient_checkpointing"), (FULL, 24.0, "micro_batch_size")]
)
def test_a_pinned_key_never_changes(text, gib, key):
    subject = small(text, gib)
    found = fit(subject, keep=[key])
    assert found.best is None or results(found)
    for one in results(found):
        assert one.document.values[key] == subject.document.values[key]
        assert one.run.value(key) == subject.run.value(key)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "gib", "few"), [(LORA, 1.75, True), (LORA, 2.2, False), (FULL, 3.5, False)], ids=["timed", "lora", "full"]
)
def test_the_same_answer_as_trying_everything(text, gib, few, monkeypatch):
    monkeypatch.setattr("vramwise.variants.search.finding.FEW", 10_000 if few else 0)
    subject = small(text, gib)
    axes = tuple(axis for axis in AXES if axis.name in ("batches", "checkpointing", "loss"))
    found = search_of(SubjectWorkshop(subject=subject), axes)
    assert found.best() == brute_force(search_of(SubjectWorkshop(subject=subject), axes).book)


def brute_force(book):
    """The best of all, each simulated."""
    ranked = []
    for pick in book.space.picks():
        attempt = book.attempt(pick)
        if attempt.run is None or (any(pick) and book.workshop.refusal(attempt)):
            continue
        candidate = weighed(book.workshop.predicted(attempt, on_card=True), book.speed(pick), None)
        if candidate.fits:
            ranked.append((*book.key(pick), candidate.reserved_bytes, pick))
    return min(ranked)[3] if ranked else None
