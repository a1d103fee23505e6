"""The verdict: one word and its figures, and the margin that leaves it open."""

import pytest

from opened import make_target
from vramwise.documents.document import parse_document
from vramwise.opening.subject import on_target
from vramwise.render.verdict_text import reasons, sentence
from vramwise.trainers.registry import trainer_named
from vramwise.units import GIB, MIB
from vramwise.variants import doubts
from vramwise.variants.doubts import Doubt

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 1024
pad_to_sequence_len: true
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
attn_implementation: sdpa
"""


@pytest.fixture
def subject():
    document = parse_document("config.yml", CONFIG.encode())
    return on_target(document, trainer_named("axolotl"), make_target(gpu="h100"))


@pytest.fixture
def unsure(monkeypatch):
    """Make every figure uncertain by these shares."""

    def doubt(more, less):
        found = Doubt(kind="card", text="a card that nobody measured", more=more, less=less)
        monkeypatch.setattr(doubts, "_SOURCES", (lambda run, model: iter([found]),))

    doubt(0.0, 0.0)
    return doubt


def verdict(subject, spare_bytes):
    needs = subject.prediction().needs.highest_reserved_bytes
    return subject.prediction(limit_bytes=needs + spare_bytes).verdict()


def test_kinds_and_figures(subject, unsure):
    assert verdict(subject, GIB).kind == "fits"
    assert verdict(subject, GIB).spare_bytes == GIB
    assert verdict(subject, 20 * MIB).kind == "tight"
    short = verdict(subject, -2 * GIB)
    assert (short.kind, short.short_bytes, short.spare_bytes) == ("does_not_fit", 2 * GIB, 0)


def test_what_fits_fits_with_its_margin(subject, unsure):
    unsure(0.3, 0.0)
    needs = subject.prediction().needs.highest_reserved_bytes
    assert verdict(subject, 300 * MIB).kind == "may_fit"
    assert verdict(subject, 300 * MIB).within_error
    assert verdict(subject, int(0.29 * needs)).kind == "may_fit"
    assert verdict(subject, int(0.31 * needs)).kind == "fits"
    assert verdict(subject, -2 * GIB).kind == "does_not_fit", "it may take more, not less"


def test_what_does_not_fit_would_not_with_less_either(subject, unsure):
    unsure(0.0, 0.5)
    needs = subject.prediction().needs.highest_reserved_bytes
    assert verdict(subject, -2 * GIB).kind == "may_fit"
    assert verdict(subject, -int(0.45 * needs)).kind == "may_fit"
    assert verdict(subject, -int(0.6 * needs)).kind == "does_not_fit"
    assert verdict(subject, GIB).kind == "fits", "it may take less, not more"


def test_a_run_that_only_retries_may_save_is_open(subject, unsure):
    needs = subject.prediction().needs
    assert needs.highest_reserved_bytes > needs.highest_allocated_bytes
    kinds = [verdict(subject, -spare * MIB).kind for spare in range(0, 3000, 60)]
    assert kinds[0] == "tight"
    assert list(dict.fromkeys(kinds)) == ["tight", "may_fit", "does_not_fit"]


def test_the_margin_is_named_with_what_causes_it(subject, unsure):
    unsure(0.3, 0.1)
    needs = subject.prediction().needs.highest_reserved_bytes
    prediction = subject.prediction(limit_bytes=needs + 300 * MIB)
    assert sentence(prediction).startswith("May not fit")
    first, second = list(reasons(prediction))[:2]
    assert "a card that nobody measured" in first
    assert "30 % more" in first
    assert "settle" in second
