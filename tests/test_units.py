"""Sizes as texts: one form, whoever shows them."""

import pytest

from vramwise.units import GIB, MIB, a_step, gib, gib_change, largest, mib, parse_size, readable, whole_number


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 MiB"),
        (1, "< 1 MiB"),
        (MIB // 2 - 1, "< 1 MiB"),
        (MIB, "1 MiB"),
        (512 * MIB, "512 MiB"),
        (GIB - 1, "1024 MiB"),
        (GIB, "1.0 GiB"),
        (int(23.94 * GIB), "23.9 GiB"),
        (-3 * GIB, "-3.0 GiB"),
        (-5 * MIB, "-5 MiB"),
    ],
)
def test_a_size_is_readable(size_bytes, text):
    assert readable(size_bytes) == text


def test_the_other_forms():
    assert (gib(GIB // 2), mib(GIB)) == ("0.5 GiB", "1024 MiB")
    assert (gib_change(GIB), gib_change(-GIB // 2), gib_change(0)) == ("+1.0 GiB", "-0.5 GiB", "+0.0 GiB")
    assert [a_step(rate) for rate in (1.25 * GIB, 3.2 * MIB, 512.0)] == ["1.25 GiB", "3.2 MiB", "512 B"]


def test_the_largest_come_first_and_crumbs_are_left_out():
    sizes = {"a": 5 * MIB, "b": 2 * GIB, "c": 7 * MIB, "d": MIB, "e": 1}
    assert largest(sizes) == "b 2.0 GiB, c 7 MiB, a 5 MiB"
    assert largest({"e": 1}) == ""


@pytest.mark.parametrize("size_bytes", [MIB, 640 * MIB, GIB, 80 * GIB])
def test_what_is_shown_can_be_read_again(size_bytes):
    assert parse_size(readable(size_bytes)) == size_bytes


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "+1", " 1", "1_0", "1.0", "9" * 12, "9" * 5000])
def test_a_text_that_is_no_number_of_ours(text):
    assert whole_number(text) is None


def test_a_whole_number():
    assert [whole_number(text) for text in ("0", "007", "99999999999")] == [0, 7, 99999999999]
