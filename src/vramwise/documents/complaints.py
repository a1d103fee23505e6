"""What PyYAML's scanner and parser complain about, said in one sentence: what, why, what to do.

Only sentences and places. What counts as an error is decided elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import yaml

from vramwise.errors import ConfigError
from vramwise.types import place_of


class _Sentence(NamedTuple):
    """Our words for a complaint that contains `sign`; `at_context`: the place is where the construct began."""

    sign: str
    words: str
    at_context: bool = False


# The first match wins.
_SENTENCES = (
    _Sentence(
        "mapping values are not allowed",
        "a ': ' stands where no key can start: put the key on a line of its own, aligned with its neighbours, "
        "or quote the value if the colon belongs to it",
    ),
    _Sentence(
        "could not find expected ':'", "this is not a 'key: value' line: there is no ': ' in it", at_context=True
    ),
    _Sentence(
        "sequence entries are not allowed", "a '- ' item cannot start here: put it on a line of its own below its key"
    ),
    _Sentence("mapping keys are not allowed", "a '? ' key cannot start here: put it on a line of its own"),
    _Sentence(
        "expected <block end>",
        "this line does not fit the lines above: its indentation matches none of them, or a value already ended",
    ),
    _Sentence("expected ',' or ']'", "this '[' is never closed, or a ',' is missing behind an item", at_context=True),
    _Sentence("expected ',' or '}'", "this '{' is never closed, or a ',' is missing behind an entry", at_context=True),
    _Sentence(
        "found unexpected end of stream", "this quoted text is never closed: add the closing quote", at_context=True
    ),
    _Sentence(
        "found unexpected document separator",
        "this quoted text is never closed before a '---' or '...' line: add the closing quote",
        at_context=True,
    ),
    _Sentence("expected '<document start>'", "the document ended before this: remove what stands here, or indent it"),
    _Sentence(
        "found unknown escape character",
        "this '\\' escape does not exist in double quotes: write '\\\\', or use single quotes",
    ),
    _Sentence(
        "expected escape sequence", "this '\\' escape lacks hexadecimal digits: complete it, or use single quotes"
    ),
    _Sentence(
        "expected chomping or indentation indicators",
        "text follows '|' or '>' on the same line: start it on the next line, indented, or quote the value",
    ),
    _Sentence(
        "expected a comment or a line break",
        "text stands where the line must end: move it to the next line, or remove it",
    ),
    _Sentence("expected indentation indicator", "the indentation behind '|' or '>' must be 1 to 9"),
    _Sentence(
        "expected alphabetic or numeric character",
        "a '*' or '&' here starts an alias or anchor, but no name follows: quote the value if the sign belongs to it",
    ),
    _Sentence(
        "found undefined tag handle", "a '!' here starts a tag that is not defined: quote the value if it belongs to it"
    ),
    _Sentence(
        "while scanning a tag", "a '!' here starts a tag that is not complete: quote the value if it belongs to it"
    ),
    _Sentence("expected the node content", "a value is missing here: write one, or quote the sign that stands here"),
    _Sentence("found incompatible YAML document", "the '%YAML' line asks for a version other than 1.x: remove it"),
    _Sentence("directive", "a '%' at the start of a line is a YAML directive, and this one is not valid: remove it"),
)
_GENERIC = "this is not valid YAML: correct it, or quote the value if it is meant as text"


def error_at(text: str, offset: int, message: str) -> ConfigError:
    """A ConfigError at a character of the text."""
    place = place_of(text, offset, offset)
    return ConfigError(message, line=place.line, column=place.column)


def complaint(text: str, error: yaml.YAMLError) -> ConfigError:
    """Our sentence for an error of PyYAML."""
    problem = str(getattr(error, "problem", "") or "")
    context = str(getattr(error, "context", "") or "")
    here = getattr(error, "problem_mark", None)
    start = getattr(error, "context_mark", None) or here
    here = here or start
    offset = 0 if here is None else here.index
    if "cannot start any token" in problem:
        return error_at(text, offset, _bad_character(text, offset))
    for sentence in _SENTENCES:
        if sentence.sign in f"{context} {problem}":
            place = start.index if sentence.at_context and start is not None else offset
            return error_at(text, place, sentence.words)
    return error_at(text, offset, _GENERIC)


def _bad_character(text: str, offset: int) -> str:
    character = text[offset : offset + 1]
    if character == "\t":
        line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
        if not text[line_start:offset].strip(" \t\ufeff"):
            return "this line is indented with a tab; YAML allows only spaces there: replace the tab by spaces"
        return "a tab stands between words here; YAML allows only spaces there: replace the tab by a space"
    return f"a value cannot start with '{character}': quote it"
