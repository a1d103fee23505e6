"""Searches end by a count of work: the same on every machine, and never with anything but an answer."""

from importlib import import_module

import pytest
from small_runs import LORA, fitted, small

from vramwise.variants.axes import opened
from vramwise.variants.effort import Effort, OutOfEffort
from vramwise.variants.search.beyond import SLOWER, UNTRIED
from vramwise.variants.search.finding import Search
from vramwise.verbs import finding_figures as figures
from vramwise.verbs.fitting.fastest import answer_of
from vramwise.verbs.fitting.fastest import fit_subject as fit
from vramwise.verbs.fitting.shorter_rows import rows_that_fit
from vramwise.verbs.fitting.ways_out import way_out

MANY = LORA.replace("gradient_accumulation_steps: 4", "gradient_accumulation_steps: 1000000")
WIDE = LORA.replace("sample_packing: true\npad_to_sequence_len: true\n", "").replace("1024", "2048")


def limit(monkeypatch, units):
    for module in (
        "finding_figures",
        "fitting.fastest",
        "fitting.largest",
        "fitting.shorter_rows",
        "fitting.ways_out",
        "fitting.smallest_card",
    ):
        for name in ("ANSWER", "BESIDE", "OPENED", "REMEDY", "CARDS"):
            monkeypatch.setattr(import_module(f"vramwise.verbs.{module}"), name, units, raising=False)


def test_effort_stops_at_its_limit():
    effort = Effort()
    effort.spend(9)
    effort.stop_at(10)
    effort.spend(1)
    with pytest.raises(OutOfEffort):
        effort.stop_at(10)


@pytest.mark.parametrize("gib", [1.5, 4])
@pytest.mark.parametrize("units", [0, 20_000, 60_000, 120_000])
def test_wherever_a_search_ends_it_has_an_answer(monkeypatch, units, gib):
    limit(monkeypatch, units)
    found = fit(small(LORA, gib))
    assert found.original.prediction is not None
    assert (found.best or found.closest).prediction is not None
    assert found.best is None or found.best.fits
    assert not found.ended_early or SLOWER not in found.fallen


@pytest.mark.parametrize("again", [False, True])
def test_a_search_that_ended_early_goes_on_from_its_answer(monkeypatch, again):
    searches = []

    def ends_at_its_start(search, best=Search.best):
        searches.append(search)
        search.ended_early = len(searches) == 1
        return search.book.space.start if search.ended_early else best(search)

    monkeypatch.setattr(Search, "best", ends_at_its_start)
    slow = small(LORA.replace("micro_batch_size: 2", "micro_batch_size: 1"), 6)
    found = answer_of(slow.apart(), opened(()), again=again)
    assert found.fits
    assert len(searches) == 1 + again
    assert (found.run.batch.micro_batch_size > 1) is again


def test_a_million_micro_batches_are_searched_within_the_limit(monkeypatch):
    limit(monkeypatch, 400_000)
    subject = small(MANY, 4)
    found = fit(subject)
    assert found.ended_early
    assert found.fallen[UNTRIED]
    # the run itself comes before the search; the last simulation of it and of the cards may go beyond their limits
    assert subject.effort.spent < 2 * 400_000 + 3 * subject.effort.run


def test_the_same_search_takes_the_same_effort(monkeypatch):
    """Also where its parts are remembered from the first time."""
    limit(monkeypatch, 200_000)
    first, second = small(LORA, 4), small(LORA, 4)
    answers = [fit(subject) for subject in (first, second)]
    assert first.effort.spent == second.effort.spent > 0
    assert answers[0].simulated == answers[1].simulated
    assert answers[0].fallen == answers[1].fallen


def test_a_search_that_is_not_cut_short_does_not_say_so():
    _, found = fitted(LORA, 4)
    assert not found.ended_early
    assert UNTRIED not in found.fallen


def test_a_remedy_beyond_the_limit_is_a_command():
    out = way_out(small(LORA, 4), most=1)
    assert out.attempt is None
    assert out.command == "vramwise fit config.yml --gpu 4096MiB"


def test_the_largest_value_so_far_is_the_answer(monkeypatch):
    certain = fit(small(LORA, 6), maximise="micro_batch_size")
    assert not certain.ended_early
    limit(monkeypatch, 30_000)
    found = fit(small(LORA, 6), maximise="micro_batch_size")
    assert found.ended_early
    assert found.fallen[UNTRIED] <= found.considered
    assert found.best is None or found.best.run.batch.micro_batch_size <= certain.best.run.batch.micro_batch_size


def test_rows_and_figures_draw_from_the_same_count(monkeypatch):
    subject = small(WIDE, 3)
    prediction = subject.prediction()
    assert rows_that_fit(subject, prediction) is not None
    spent = subject.effort.spent - subject.effort.run
    assert figures.reserved_as_written(small(WIDE, 3)) is not None
    assert way_out(subject, most=spent).attempt is None
