"""The verdict: one word and its figures, and where the error of runs like it could turn it."""

from dataclasses import replace

import pytest

from opened import make_target
from vramwise.documents.document import parse_document
from vramwise.facts import accuracy
from vramwise.subject import on_target
from vramwise.trainers.registry import trainer_named
from vramwise.units import GIB, MIB

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 1024
pad_to_sequence_len: true
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""


@pytest.fixture(scope="module")
def subject():
    document = parse_document("config.yml", CONFIG.encode())
    return on_target(document, trainer_named("axolotl"), make_target(gpu="h100"))


@pytest.fixture
def off_by(monkeypatch):
    """Every measured run was off by so much."""

    def record(*errors):
        runs = accuracy.record()[0]
        made = [replace(run, reserved=errors[number % len(errors)]) for number, run in enumerate(runs)]
        monkeypatch.setattr(accuracy, "record", lambda: (tuple(made), "made up"))
        accuracy._expected.cache_clear()

    yield record
    accuracy._expected.cache_clear()


def verdict(subject, spare_bytes):
    needs = subject.prediction().needs.highest_reserved_bytes
    return subject.prediction(limit_bytes=needs + spare_bytes).verdict()


def test_kinds_and_figures(subject):
    assert verdict(subject, GIB).kind == "fits"
    assert verdict(subject, GIB).spare_bytes == GIB
    assert verdict(subject, 20 * MIB).kind == "tight"
    short = verdict(subject, -2 * GIB)
    assert (short.kind, short.short_bytes, short.spare_bytes) == ("does_not_fit", 2 * GIB, 0)


def test_a_verdict_within_the_error_says_so(subject, off_by):
    off_by(0.0)
    assert not verdict(subject, 20 * MIB).within_error
    off_by(-30.0)
    assert verdict(subject, 300 * MIB).within_error
    assert not verdict(subject, 60 * GIB).within_error
    assert not verdict(subject, -2 * GIB).within_error, "it took more, not less"
    off_by(80.0)
    assert verdict(subject, -2 * GIB).within_error
    assert not verdict(subject, 300 * MIB).within_error
