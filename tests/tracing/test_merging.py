"""Three passes become one program with formulas."""

import pytest

from vramwise.ghost.traced.program import number
from vramwise.tracing.merging import SIZES, Differs, formula, merge


def at(rows, tokens):
    """What some recorded numbers are for a batch."""
    return [7, rows, 3 * rows * tokens, tokens + 2, -(-tokens // 64), rows * 32]


def test_formulas_give_the_numbers_of_other_sizes():
    merged = merge(*[at(*size) for size in SIZES])
    assert [number(one, 5, 4096) for one in merged] == at(5, 4096)


def test_a_number_that_is_always_the_same_is_kept():
    assert merge({"a": [1, "x"]}, {"a": [1, "x"]}, {"a": [1, "x"]}) == {"a": [1, "x"]}


@pytest.mark.parametrize("values", [([1], [1, 2], [1]), ("a", "b", "a"), ({"k": 1}, {"j": 1}, {"k": 1})])
def test_other_instructions_at_another_size_are_refused(values):
    with pytest.raises(Differs):
        merge(*values)


def test_a_number_that_follows_no_formula_is_refused():
    with pytest.raises(Differs):
        formula(10, 15, 11)
