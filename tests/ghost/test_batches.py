"""Shapes of batches from the lengths of samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truth import BUNDLED, cases
from vramwise.errors import VramwiseError
from vramwise.ghost.loops.batches import BatchShape, labels_in, largest
from vramwise.variants.batches import eval_shapes, first_and_widest, lists_widths, train_shapes, varied_lengths
from vramwise.variants.lengths import Lengths, parse_lengths

PLAIN = next(case.run for case in cases(BUNDLED) if case.run.adapter.kind == "lora")
RUN = PLAIN.changed(
    micro_batch_size=2,
    sequence_len=1024,
    constant_shapes=False,
    pad_to_sequence_len=False,
    pad_multiple=64,
    evaluates=True,
    eval_batch_size=3,
    eval_sequence_len=512,
)


def lengths(*tokens: int) -> Lengths:
    return Lengths(tokens=tokens)


def test_rows_are_padded_to_the_longest_of_their_batch_rounded_up():
    assert train_shapes(RUN, lengths(100, 200, 64, 64)) == [BatchShape(2, 256, True), BatchShape(2, 64, False)]


def test_the_last_batch_may_be_smaller():
    assert train_shapes(RUN, lengths(64, 65, 128))[-1] == BatchShape(1, 128, False)


def test_what_is_too_long_is_dropped_or_cut():
    drops, cut = RUN.changed(long_rows="drop"), RUN.changed(long_rows="cut")
    assert train_shapes(drops, lengths(5000, 65, 128)) == [BatchShape(2, 128, True)]
    assert train_shapes(cut, lengths(5000, 65, 128)) == [BatchShape(2, 1024, True), BatchShape(1, 128, False)]
    assert train_shapes(RUN, lengths(5000, 65, 128))[0].width == 1024


def test_nothing_left_is_an_error():
    with pytest.raises(VramwiseError, match="longer than sequence_len 1024"):
        train_shapes(RUN.changed(long_rows="drop"), lengths(5000, 6000))


def test_padding_to_sequence_len_pads_short_rows_too():
    run = RUN.changed(pad_to_sequence_len=True)
    assert train_shapes(run, lengths(100, 200)) == [BatchShape(2, 1024, True)]


def test_rounded_lengths_are_widths_with_shorter_rows_in_them():
    assert lists_widths([128, 256], 64)
    assert train_shapes(RUN, lengths(128, 128, 256, 256)) == [BatchShape(2, 128, True), BatchShape(2, 256, True)]


def test_evaluation_has_its_own_rows_and_lengths():
    assert eval_shapes(RUN, lengths(100, 200, 300)) == [BatchShape(3, 320, True)]
    assert eval_shapes(RUN, None) == [BatchShape(3, 512, True)] * 2  # with shorter rows beside the widest
    assert eval_shapes(RUN.changed(eval_batch_size=None), None) == []


def test_packed_rows_are_full_whatever_the_lengths():
    one = RUN.changed(sample_packing=True, packing_rows="one", eval_sample_packing=True)
    assert train_shapes(one, lengths(3, 4, 5)) == [BatchShape(1, 2048, False)]
    # an evaluation has few samples: its rows, with room for its own batch size, hold what there is
    assert eval_shapes(one, None) == [BatchShape(1, 3072, False)] * 2
    assert eval_shapes(one, lengths(3, 4, 5)) == [BatchShape(1, 64, False)]
    assert largest(one.changed(packing_rows="micro")) == BatchShape(2, 1024, True)  # a block-diagonal mask
    assert eval_shapes(one.changed(eval_sample_packing=False), None) == [BatchShape(3, 512, True)] * 2


@given(st.lists(st.integers(1, 1024), max_size=40))
def test_samples_of_an_evaluation_go_into_the_first_row_that_takes_them(tokens):
    one = RUN.changed(sample_packing=True, packing_rows="one", eval_sample_packing=True, pad_multiple=1)
    rows = []
    for length in tokens:
        place = next((place for place, held in enumerate(rows) if held + length <= 3072), len(rows))
        rows[place:] = [length] if place == len(rows) else [rows[place] + length, *rows[place + 1 :]]
    assert [shape.width for shape in eval_shapes(one, lengths(*tokens))] == rows


def test_made_up_lengths_reach_the_longest_and_vary():
    made = varied_lengths(RUN).tokens
    assert max(made) == 1024
    assert len(set(made)) > len(made) // 2
    assert train_shapes(RUN, varied_lengths(RUN))[-1].width == 1024


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_length():
    assert parse_lengths("\ufeff100\r\n\r\n200\r\n", "lengths.txt").tokens == [100, 200]


def test_samples_say_their_length_in_tokens_or_in_text():
    assert parse_lengths('{"length": 7, "text": "abc"}\n{"input_ids": [1, 2]}', "l.jsonl").tokens == [7, 2]
    said = parse_lengths('{"length": null, "messages": [{"content": "12345"}]}\n{"text": ""}', "l.jsonl")
    assert said.tokens == [2, 1]
    assert "estimated" in said.assumptions[0]


@pytest.mark.parametrize("length", ["-3", "0", "true", '"12"', "12.5", "2147483648", "[]"])
def test_a_sample_whose_length_is_none_is_refused_with_its_line(length):
    with pytest.raises(VramwiseError, match=r"l\.jsonl:2: `length` is "):
        parse_lengths(f'{{"length": 4}}\n{{"length": {length}}}\n', "l.jsonl")


def test_a_sample_that_says_nothing_of_its_length_is_refused_with_its_line():
    with pytest.raises(VramwiseError, match=r"l\.jsonl:2: a sample without"):
        parse_lengths('{"text": "abc"}\n{"label": 1}\n', "l.jsonl")


@pytest.mark.parametrize("text", ["", "ten\n", "0\n", "-3\n", "1.5\n", "{}x\n", '{"length": 4}\n[1]\n'])
def test_what_is_no_length_is_refused_with_its_line(text):
    with pytest.raises(VramwiseError, match=r"lengths\.txt"):
        parse_lengths(text, "lengths.txt")


def test_of_many_batches_the_first_and_the_step_with_the_widest_are_taken():
    narrow, wide = BatchShape(2, 64, False), BatchShape(2, 1024, False)
    many = [narrow] * 11
    assert first_and_widest(many, 2, 12) == many
    assert first_and_widest([*many, wide], 2, 4) == [narrow] * 5 + [wide]
    assert first_and_widest([wide, *many], 2, 4) == [wide] + [narrow] * 3
    # a step is never cut, and a rest that makes no whole step does not count
    assert first_and_widest([*many, narrow, wide], 3, 2) == [narrow] * 3


def test_a_length_of_thousands_of_digits_and_a_file_of_millions_of_lines_are_refused():
    with pytest.raises(VramwiseError, match=r"lengths\.txt:2: '9{40}' is not a length"):
        parse_lengths("5\n" + "9" * 5000, "lengths.txt")
    with pytest.raises(VramwiseError, match=r"lengths\.txt has 2,000,001 lines"):
        parse_lengths("5\n" * 2_000_001, "lengths.txt")


def test_losses_that_take_labelled_tokens_are_told_how_many():
    tiled = RUN.changed(loss_kernel="tiled", long_rows="cut")
    told = Lengths(tokens=[100, 200, 1500, 60], labelled=[90, 180, 1400, 0])
    first, second = train_shapes(tiled, told)
    assert (first.tokens, labels_in(first)) == (300, 270)
    assert labels_in(second) == 1400 - (1500 - 1024)  # a sample is cut at its end, where its labels are
    untold = train_shapes(tiled, lengths(100, 200))[0]
    assert labels_in(untold) == 300 - 2  # all but the first token of each row
    assert labels_in(train_shapes(RUN, told)[0]) is None  # nothing goes by it


def test_widths_of_packed_batches_are_taken_as_they_are():
    one = RUN.changed(sample_packing=True, packing_rows="one")
    given = Lengths(tokens=[2040, 1999], labelled=[1900, 1800], packed=True)
    assert [(shape.rows, shape.width, shape.labelled) for shape in train_shapes(one, given)] == [
        (1, 2040, 1900),
        (1, 1999, 1800),
    ]


def test_samples_may_say_how_many_of_their_tokens_are_trained_on():
    assert parse_lengths('{"length": 90, "labelled": 70}\n{"length": 50, "labelled": 0}', "f").labelled == [70, 0]
    assert parse_lengths('{"length": [90, 80], "labelled": [70, 60]}', "f").labelled == [70, 60]
    assert parse_lengths('{"length": 90}', "f").labelled is None
    for bad in ("91", "-1", "true", "[1, 2]", '"x"'):
        with pytest.raises(VramwiseError, match="`labelled` is"):
            parse_lengths(f'{{"length": 90, "labelled": {bad}}}', "f")
    with pytest.raises(VramwiseError, match="all or none"):
        parse_lengths('{"length": 90, "labelled": 70}\n{"length": 50}', "f")
