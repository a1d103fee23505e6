"""Three passes become one program with formulas."""

import pytest

from vramwise.ghost.traced.program import number
from vramwise.models.recorder.merging import Differs, check, formula, merge, sizes

SIZES = sizes(4096)


def at(rows, tokens):
    """What some recorded numbers are for a batch."""
    return [7, rows, 3 * rows * tokens, tokens + 2, -(-tokens // 64), rows * 32]


def test_formulas_give_the_numbers_of_other_sizes():
    merged = merge(SIZES, *[at(*size) for size in SIZES[:3]])
    assert [number(one, 5, 4096) for one in merged] == at(5, 4096)


def test_a_number_that_is_always_the_same_is_kept():
    assert merge(SIZES, {"a": [1, "x"]}, {"a": [1, "x"]}, {"a": [1, "x"]}) == {"a": [1, "x"]}


@pytest.mark.parametrize("values", [([1], [1, 2], [1]), ("a", "b", "a"), ({"k": 1}, {"j": 1}, {"k": 1})])
def test_other_instructions_at_another_size_are_refused(values):
    with pytest.raises(Differs):
        merge(SIZES, *values)


def test_a_number_that_follows_no_formula_is_refused():
    with pytest.raises(Differs):
        formula(SIZES, 10, 15, 11)


def test_a_formula_that_fails_at_another_size_is_refused():
    def padded(tokens):  # to whole chunks of 4096: the same for all sizes that formulas are found by
        return [-(-tokens // 4096) * 4096, -(-tokens // 1000)]

    merged = merge(SIZES, *[padded(size.tokens) for size in SIZES[:3]])
    with pytest.raises(Differs):
        check(merged, padded(SIZES[3].tokens), SIZES[3])
