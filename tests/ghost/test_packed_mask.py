"""Masks of packed rows under sdpa: made from positions, in which transformers finds the samples."""

from vramwise.ghost.dtypes import INT64
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.model.mask import packed_mask
from vramwise.ghost.tape import Tape
from vramwise.timeline import Action

ROWS, TOKENS = 2, 512
SQUARE = TOKENS * TOKENS


def allocations(window):
    t = Tape(Hardware())
    positions = t.new((ROWS, TOKENS), INT64)
    before = len(t.events)
    mask = packed_mask(t, positions, window=window)
    events = t.events[before:]
    made = [event.size_bytes for event in events if event.action == Action.ALLOC]
    freed = sum(event.action == Action.FREE for event in events)
    assert mask.shape == (ROWS, 1, TOKENS, TOKENS)
    return made, freed


def test_samples_are_compared_with_samples_before_the_mask_is_joined():
    """As recorded on an H200 (Gemma 3, transformers 5.20): causal, joined; samples compared for all rows, joined."""
    made, freed = allocations(None)
    assert [size for size in made if size >= SQUARE] == [SQUARE, SQUARE, ROWS * SQUARE, ROWS * SQUARE]
    assert freed == len(made) - 1


def test_a_window_adds_its_own_comparisons():
    made, freed = allocations(128)
    assert [size for size in made if size >= SQUARE] == [*[SQUARE] * 5, ROWS * SQUARE, ROWS * SQUARE]
    assert freed == len(made) - 1


def test_a_window_that_is_wider_than_the_row_is_none():
    assert allocations(4096) == allocations(None)
