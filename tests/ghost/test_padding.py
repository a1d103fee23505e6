"""Padding that flash attention leaves out, losses of slices, outliers of 8-bit products: bytes worked out by hand."""

import pytest

from opened import make_target, resolve
from vramwise.documents.document import parse_document
from vramwise.ghost.dtypes import BF16, BOOL, FP32, INT64
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.loops.batches import BatchShape, from_lengths
from vramwise.ghost.model.kernels import Flash
from vramwise.ghost.ops.loss import compiled_cross_entropy
from vramwise.ghost.ops.quantised import linear_8bit, outlier_share
from vramwise.ghost.tape import Leaf, Tape
from vramwise.ghost.trainer_losses import WEIGHTED
from vramwise.timeline import Action


def tape() -> Tape:
    t = Tape(Hardware())
    t.workspace()
    return t


def asked(t, run) -> list[int]:
    """What is asked for while something runs."""
    start = len(t.events)
    kept = run()
    del kept
    return [event.size_bytes for event in t.events[start:] if event.action == Action.ALLOC]


def test_flash_attention_leaves_padding_out():
    t = tape()
    t.real_tokens = 100
    query, key = t.new((2, 4, 64, 32), BF16), t.new((2, 2, 64, 32), BF16)
    mask = t.new((2, 64), BOOL)
    sizes = asked(t, lambda: Flash()(t, query, key, key, mask))
    indices, narrow, wide, whole = 100 * 8, 100 * 2 * 32 * 2, 100 * 4 * 32 * 2, 2 * 64 * 4 * 32 * 2
    assert sizes[:5] == [indices, narrow, narrow, wide, wide]
    assert sizes[-1] == whole
    assert asked(t, lambda: Flash()(t, query, key, key, None))[0] == whole


@pytest.mark.parametrize(("attention", "tokens"), [("flash_attention_2", 9), ("sdpa", None)])
def test_real_tokens_are_counted_where_they_matter(attention, tokens):
    text = f"micro_batch_size: 2\npad_to_sequence_len: false\nattn_implementation: {attention}\n"
    run = resolve(parse_document("config.yml", text.encode()), make_target(env={}, look_around=False))
    padded, full = from_lengths(run, [5, 4, 7, 7])
    assert padded == BatchShape(2, 5, True, tokens)
    assert full == BatchShape(2, 7, False)


def test_a_compiled_cross_entropy_keeps_its_input_and_two_numbers_a_row():
    t = tape()
    made = t.new((16, 1000), BF16)
    logits = Leaf(made.storage, made.shape, made.numel, made.dtype)
    logits.require_grad()
    target = t.new((16,), INT64)
    sizes = asked(t, lambda: compiled_cross_entropy(t, logits, target))
    assert sizes == [16 * 4, 16 * 4, 4]


def test_outliers_are_kept_beside_the_input():
    t = tape()
    made = t.new((1, 64, 256), BF16)
    x = Leaf(made.storage, made.shape, made.numel, made.dtype)
    x.require_grad()
    linear_8bit(t, x, (128, 256), outliers=10)
    held = [loud for _, loud, _ in t.graph_holds]
    assert held[0].shape == (64, 10)
    linear_8bit(t, x, (128, 256))
    assert t.graph_holds[1][1] is None


def test_how_many_columns_have_an_outlier():
    """4096 wide: 4096 tokens leave no column without one (998 of 1000 measured); narrow models have none."""
    assert outlier_share(4096, 4096) > 0.99
    assert outlier_share(896, 4096) < 0.001
    assert outlier_share(2048, 512) < outlier_share(2048, 4096) < 0.5


@pytest.mark.parametrize("kind", ["dft", "eaft"])
def test_weighted_losses_hold_the_logits_three_times_in_fp32(kind):
    """Shifted, picked, and as log-probabilities; the entropy picks once more, for a moment."""
    t = tape()
    made = t.new((2, 9, 1000), FP32)
    logits = Leaf(made.storage, made.shape, made.numel, made.dtype)
    logits.require_grad()
    labels = t.new((2, 9), INT64)
    once = 2 * 8 * 1000 * 4
    sizes = asked(t, lambda: WEIGHTED[kind](t, logits, labels))
    assert sizes.count(once) == (3 if kind == "dft" else 4)


@pytest.mark.parametrize(("kind", "times"), [("dft_whole", 1), ("eaft_whole", 2)])
def test_weighted_losses_of_all_logits_copy_none(kind, times):
    """Log-probabilities of all of them; the entropy picks them once, for a moment."""
    t = tape()
    made = t.new((2, 9, 1000), FP32)
    logits = Leaf(made.storage, made.shape, made.numel, made.dtype)
    logits.require_grad()
    sizes = asked(t, lambda: WEIGHTED[kind](t, logits, t.new((2, 9), INT64)))
    assert sizes.count(2 * 9 * 1000 * 4) == times
