"""The one place that neutralises: what acts is shown, what is ours stays, what programs read is exact and valid."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.render.json_text import json_text
from vramwise.render.outward import outward, style, unstyle, visible

ANYTHING = st.text(st.characters(codec=None))
ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("\u202eevil", r"\u202eevil"),
        ("\ud800 and the byte \udcff", r"\ud800 and the byte \xff"),
        ("\U000e0041", r"\U000e0041"),
        ("größe → 4 GiB · 中文 العربية 👩‍💻", "größe → 4 GiB · 中文 العربية 👩‍💻"),
        (r"C:\configs\new.yml", r"C:\configs\new.yml"),
    ],
)
def test_what_acts_is_shown(text, shown):
    assert visible(text) == shown


@given(ANYTHING)
def test_nothing_acts(text):
    line = outward(f"{style(text, bold=True)}: {text}")
    plain = re.sub("\x1b\\[[0-9;]*m", "", line, count=2)
    assert not ACTING.search(plain)
    assert not re.match(r"\s*::", plain)
    assert not re.search(r"##\w*\[", plain)
    line.encode()


def test_colours_are_ours_alone():
    assert outward(style("x", fg="red")) == "\x1b[31mx\x1b[0m"
    assert outward(style("\x1b[8mhidden", bold=True)) == "\x1b[1m\\x1b[8mhidden\x1b[0m"
    assert unstyle(style(f"a {style('b', dim=True)}", fg="red")) == "a b"


@pytest.mark.parametrize("line", ["::error::x", "  ::error::x", "\u3000::error::x", "##[error]x", "a ##vso[b]c"])
def test_no_line_speaks_to_a_ci_service_unless_we_do(line):
    assert outward(line) != line
    assert outward(line, commands=True) == line
    assert "::" not in outward(style("::", bold=True) + "stop-commands")


@given(
    st.recursive(
        ANYTHING | st.floats() | st.none() | st.booleans(), lambda of: st.lists(of) | st.dictionaries(ANYTHING, of)
    )
)
def test_json_is_json_for_everyone(document):
    text = json_text(document, indent=2)
    assert re.fullmatch(r"[\n -~]*", text)
    assert not re.search(r"##\w*\[", text)

    def refuse(name):
        raise AssertionError(name)

    json.dumps(json.loads(text, parse_constant=refuse), ensure_ascii=False).encode()


def test_json_keeps_values_and_names_numbers_it_lacks():
    assert json.loads(json_text({"a": "\x1b\n\x7f##[x] \u202e", "b": [1.5, True, None]})) == {
        "a": "\x1b\n\x7f##[x] \u202e",
        "b": [1.5, True, None],
    }
    numbers = [float("nan"), float("inf"), float("-inf")]
    assert json.loads(json_text(numbers)) == ["NaN", "Infinity", "-Infinity"]
    assert json.loads(json_text({None: 1, 2: "\udcff", True: (3,)})) == {"null": 1, "2": "\\xff", "true": [3]}
