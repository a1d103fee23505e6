"""The figures behind the seven rules, predicted: one H200, Llama-3.2-1B shape, LoRA (GiB allocated / reserved)."""

import random

import pytest

from vramwise import predict
from vramwise.units import GIB, MIB

BASE = """\
base_model: meta-llama/Llama-3.2-1B
micro_batch_size: 4
bf16: true
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
"""
EVAL = "sequence_len: 1024\npad_to_sequence_len: true\nval_set_size: 0.1\neval_steps: 2\n"
EXPANDABLE = "expandable_segments:True"


@pytest.fixture
def predicted(tmp_path):
    def run(text, alloc_conf, *, lengths=None, steps=4, limit_bytes=None):
        path = tmp_path / "config.yml"
        path.write_text(BASE + text)
        listed = None
        if lengths is not None:
            listed = tmp_path / "lengths.txt"
            listed.write_text("\n".join(map(str, lengths)))
        evaluated = None
        if "eval_steps" in text:  # the recorded runs had full rows
            listed = evaluated = tmp_path / "full.txt"
            evaluated.write_text("1024\n" * 32)
        return predict(
            path,
            gpu="h200",
            torch="2.11",
            alloc_conf=alloc_conf,
            engine="transformers",
            steps=steps,
            lengths=listed and str(listed),
            eval_lengths=evaluated and str(evaluated),
            limit_bytes=limit_bytes,
        )

    return run


@pytest.mark.parametrize(
    ("batch", "alloc_conf", "allocated", "reserved"),
    [(4, "", 15.5, 16.8), (8, "", 15.5, 24.6), (16, "", 22.1, 36.3), (16, EXPANDABLE, 22.1, 25.3)],
)
def test_eval_at_another_batch(predicted, batch, alloc_conf, allocated, reserved):
    needs = predicted(EVAL + f"eval_batch_size: {batch}\n", alloc_conf).needs
    assert needs.peak_allocated_bytes / GIB == pytest.approx(allocated, rel=0.01)
    assert needs.peak_reserved_bytes / GIB == pytest.approx(reserved, rel=0.01)


def test_the_cap_ends_the_run_only_under_the_default_allocator(predicted):
    text = EVAL + "eval_batch_size: 16\n"
    assert predicted(text, "", limit_bytes=28979 * MIB).fits is False  # 28.3 GiB
    assert predicted(text, EXPANDABLE, limit_bytes=23040 * MIB).prediction.report.out_of_memory is None  # 22.5 GiB


def test_lengths_that_vary(predicted):
    """The recorded lengths are not at hand, so the variable row is held by its order and a like spread of lengths."""
    dice = random.Random(1)
    lengths = [*(int(dice.uniform(200, 2048)) for _ in range(48)), 2048]
    varying = "sequence_len: 2048\n"
    constant = "sequence_len: 2048\npad_to_sequence_len: true\n"
    steps = 13
    default = predicted(varying, "", lengths=lengths, steps=steps).needs
    expandable = predicted(varying, EXPANDABLE, lengths=lengths, steps=steps).needs
    padded = predicted(constant, "", lengths=lengths, steps=steps).needs
    for needs in (default, expandable, padded):
        assert needs.peak_allocated_bytes / GIB == pytest.approx(29.8, rel=0.01)
    assert default.peak_reserved_bytes > 1.4 * expandable.peak_reserved_bytes
    assert expandable.peak_reserved_bytes / GIB == pytest.approx(32.4, rel=0.05)
    assert padded.peak_reserved_bytes / GIB == pytest.approx(32.3, rel=0.05)
