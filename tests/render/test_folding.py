"""Long lines on a terminal break between words and keep their indentation; colours take no room."""

from vramwise.render.folding import fold, fold_all
from vramwise.render.outward import style


def test_lines_break_between_words_and_further_ones_stand_deeper():
    assert fold_all(["one two three", "  four five six"], 9) == [
        "one two",
        "    three",
        "  four",
        "      five",
        "      six",
    ]


def test_a_long_word_stays_whole():
    assert fold("a " + "x" * 20 + " b", 10) == ["a", "    " + "x" * 20, "    b"]


def test_colours_take_no_room():
    text = " ".join(style(word, fg="red", bold=True) for word in ("one", "two"))
    assert fold(text, 7) == [text]


def test_without_a_terminal_lines_stay_lines():
    assert fold("one two three", None) == ["one two three"]
