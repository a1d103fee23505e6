"""Expressions from a config: what Python's matcher says, and never longer than a moment."""

import re

import pytest

from vramwise.errors import VramwiseError
from vramwise.models.patterns import Pattern

NAMES = ("model.layers.10.self_attn.q_proj", "model.layers.0.mlp.up_proj", "lm_head", "vision.blocks.3.attn", "")
PATTERNS = (
    r"model\.layers\.[\d]+\.(mlp|self_attn)\.(up|down|gate|q|k|v|o)_proj",
    r"(?!vision).*(\w+\.)+(q|k)_proj",
    r"(?:[a-z_]+\.|\d+\.)*[^.]+",
    r"^(.*\.)*(mlp|attn)(\..*)*$",
    r"(a?){3,}(\W|\s)*",
    r"(lm|vision)+_?.{0,4}.*?.*.*",
)


@pytest.mark.parametrize("text", PATTERNS)
def test_it_matches_what_python_matches(text):
    pattern, compiled = Pattern(text, "targets"), re.compile(text)
    for name in NAMES:
        assert pattern.fullmatch(name) == (compiled.fullmatch(name) is not None), name
        assert pattern.match(name) == (compiled.match(name) is not None), name


@pytest.mark.parametrize("text", ["(.*a*)*x", r"(\w+\.?)+x", ".*.*.*.*.*.*.*.*x", "((((a*)*)*)*)*b", "(.|.)*x"])
def test_no_expression_takes_for_ever(text):
    assert not Pattern(text, "targets").fullmatch("model.layers.0.self_attn.q_proj" * 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r"(a)\1(.*)*", "may take forever to match"),
        ("(a|b)*" * 500, "may take forever to match"),
        ("a" * 30_000, "has 30,000 characters"),
        ("(", "is not a regular expression"),
    ],
    ids=["back reference", "long", "very long", "broken"],
)
def test_others_are_refused_in_a_sentence(text, why):
    with pytest.raises(VramwiseError, match=f"^targets: .*{why}"):
        Pattern(text, "targets")
