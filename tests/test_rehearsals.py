"""Predictions that are not made twice, and figures that are not made at all where they cannot tell anything."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from opened import check_document, make_target, subject_of_text
from vramwise.allocator.variables import EXPANDABLE
from vramwise.documents.document import parse_document
from vramwise.ghost.loops.batches import largest
from vramwise.ghost.loops.sft import ghost_run
from vramwise.render.text import summary
from vramwise.types import SETTINGS
from vramwise.variants import simulate as simulations
from vramwise.verbs import finding_figures as figures

VARYING = """\
base_model: meta-llama/Llama-3.2-1B
sequence_len: 1024
micro_batch_size: 2
gradient_accumulation_steps: 2
bf16: true
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
val_set_size: 0
"""


class Untouchable:
    """Nobody may look at it."""

    def __getattribute__(self, name):
        raise AssertionError(f"the ghost run looked: {name}")

    def __bool__(self):
        raise AssertionError("the ghost run looked")

    __eq__ = __hash__ = __len__ = __iter__ = __contains__ = __bool__


@pytest.fixture
def ghosts(monkeypatch):
    """The widths of every ghost run that is made."""
    made = []

    def counted(run, model, **words):
        made.append(words["widths"])
        return ghost_run(run, model, **words)

    monkeypatch.setattr(simulations, "ghost_run", counted)
    return made


@pytest.fixture
def runs(monkeypatch):
    """The settings of every allocator run."""
    made = []
    simulate = simulations.simulate

    def counted(timeline, settings, **words):
        made.append(settings.text)
        return simulate(timeline, settings, **words)

    monkeypatch.setattr(simulations, "simulate", counted)
    return made


@pytest.mark.parametrize("more", ["", "val_set_size: 0.1\nsample_packing: true\n", "optimizer: adamw_bnb_8bit\n"])
@pytest.mark.parametrize("gpus", [1, 4])
def test_a_ghost_run_never_looks_at_what_does_not_decide_it(more, gpus):
    subject = subject_of_text(VARYING.replace("val_set_size: 0\n", "") + more, make_target(gpu="h100", gpus=gpus))
    unseen = [name for name, setting in SETTINGS.items() if not setting.ghost]
    blind = subject.run.changed(**dict.fromkeys(unseen, Untouchable()))
    blind = replace(blind, target=SimpleNamespace(torch=subject.run.target.torch))
    evals = [largest(subject.run, evaluation=True)]
    words = {"widths": [largest(subject.run)], "eval_widths": evals, "steps": 2, "gpu": subject.target.gpu}
    assert ghost_run(blind, subject.model, **words) == ghost_run(subject.run, subject.model, **words)


def test_another_allocator_makes_no_other_requests(ghosts, runs):
    subject = subject_of_text(VARYING, make_target(gpu="h100", alloc_conf=""))
    plain = subject.prediction()
    grown = subject.with_run(subject.run.changed(allocator=EXPANDABLE)).prediction()
    assert len(ghosts) == 1
    assert runs == ["", EXPANDABLE]
    assert grown.short_timeline is plain.short_timeline
    alone = subject_of_text(VARYING, make_target(gpu="h100", alloc_conf=EXPANDABLE)).prediction()
    assert alone.needs == grown.needs


def test_another_card_and_another_batch_are_predicted_anew(ghosts):
    subject = subject_of_text(VARYING, make_target(gpu="h100"))
    subject.prediction()
    subject.with_run(subject.run.changed(micro_batch_size=1)).prediction()
    subject.on_card(make_target(gpu="rtx-4090").gpu).prediction()
    assert len(ghosts) == 3


def test_where_segments_grow_a_check_takes_one_prediction(ghosts, runs):
    report = check_document(parse_document("a.yml", VARYING.encode()), make_target(gpu="h100"), predicts=True)
    assert "unpadded-sequences" not in {found.rule for found in report.findings}
    assert (len(ghosts), len(runs)) == (1, 1)
    assert "predicted to reserve" in summary([report])


def test_where_they_do_not_the_figures_share_what_they_can(ghosts, runs):
    target = make_target(gpu="h100", alloc_conf="")
    wide = VARYING.replace("1024", "2048").replace("micro_batch_size: 2", "micro_batch_size: 4")
    report = check_document(parse_document("a.yml", wide.encode()), target, predicts=True)
    messages = {found.rule: found.message for found in report.findings}
    assert "with lengths spread up to sequence_len" in messages["unpadded-sequences"]
    # full rows, which stand for padded ones as well, and varying ones; the latter with segments that grow, too
    assert len(ghosts) == 2
    assert len(runs) <= 3


def test_figures_that_would_take_too_long_are_named(monkeypatch):
    monkeypatch.setattr(figures, "is_large", lambda _: True)
    target = make_target(gpu="h100", alloc_conf="")
    report = check_document(parse_document("a.yml", VARYING.encode()), target, predicts=True)
    assert "unpadded-sequences" in report.without_figures
    assert "were not predicted: the run is too long" in summary([report])


def test_a_model_that_is_not_known_is_said_to_be_unpredicted():
    text = VARYING.replace("meta-llama/Llama-3.2-1B", "nobody/knows")
    report = check_document(parse_document("a.yml", text.encode()), make_target(gpu="h100"), predicts=True)
    assert "nothing predicted" in summary([report])
