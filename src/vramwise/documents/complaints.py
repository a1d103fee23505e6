"""Rewords the errors of PyYAML's scanner and parser as one sentence: what, why, what to do.

Only words and places; what counts as an error is decided elsewhere.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import yaml

from vramwise.bundled import bundled_json
from vramwise.errors import ConfigError
from vramwise.types import place_of


class _Sentence(NamedTuple):
    """Our words for an error that contains `sign`; `at_context`: report the place where the construct began."""

    sign: str
    words: str
    at_context: bool = False


_GENERIC = "not valid YAML: correct it, or quote the value if it is text"


@cache
def _sentences() -> tuple[_Sentence, ...]:
    """Return the sentences of `complaints.json`; the first match wins."""
    return tuple(_Sentence(**row) for row in bundled_json("complaints.json", __file__))


def error_at(text: str, offset: int, message: str) -> ConfigError:
    """Return a ConfigError at a character of the text."""
    place = place_of(text, offset, offset)
    return ConfigError(message, line=place.line, column=place.column)


def complaint(text: str, error: yaml.YAMLError) -> ConfigError:
    """Return our ConfigError for an error of PyYAML."""
    problem = str(getattr(error, "problem", "") or "")
    context = str(getattr(error, "context", "") or "")
    here = getattr(error, "problem_mark", None)
    start = getattr(error, "context_mark", None) or here
    here = here or start
    offset = 0 if here is None else here.index
    if "cannot start any token" in problem:
        return error_at(text, offset, _bad_character(text, offset))
    for sentence in _sentences():
        if sentence.sign in f"{context} {problem}":
            place = start.index if sentence.at_context and start is not None else offset
            return error_at(text, place, sentence.words)
    return error_at(text, offset, _GENERIC)


def _bad_character(text: str, offset: int) -> str:
    character = text[offset : offset + 1]
    if character == "\t":
        line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
        if not text[line_start:offset].strip(" \t\ufeff"):
            return "this line is indented with a tab: use spaces"
        return "unexpected tab between words: use a space"
    return f"a value cannot start with '{character}': quote it"
