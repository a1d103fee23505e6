"""What transformers' HfArgumentParser does to a written value, by the type of its field.

Files reach the dataclasses in one of two ways. As argparse defaults (TRL), texts are converted to the field's type and
other values pass unchanged. As a mapping (LLaMA-Factory, JSON), nothing is converted. Neither checks types; only fields
whose own code fails with another type (schema/strict.json) refuse one.
"""

from __future__ import annotations

from typing import Any

from vramwise.trainers.value_types import LONGEST_NUMBER_TEXT, ValueType, accepts, parse_type

TRUE = frozenset({"yes", "true", "t", "y", "1"})
FALSE = frozenset({"no", "false", "f", "n", "0"})
NOTHING = frozenset({"none", "null"})
# Words that mean no to people but are plain text if nothing is converted.
NO = FALSE | {"off"}
_CLASSES: dict[str, Any] = {"number": int | float, "text": str, "list": list, "mapping": dict}
_PLAIN_TEXT = frozenset({"str", "one_of", "any"})


def text_kind(written: str) -> tuple[ValueType, bool]:
    """Return the alternative that argparse converts a text to, and whether `none` means null.

    Text types win, except over a required switch.
    """
    alternatives, optional = parse_type(written)
    by_kind = {one.kind: one for one in alternatives}
    if "bool" in by_kind and not optional:
        return by_kind["bool"], False
    chosen = by_kind.get("str") or by_kind.get("one_of") or by_kind.get("any") or alternatives[0]
    return chosen, optional and chosen.kind not in _PLAIN_TEXT | {"bool"}


def converted(written: str, text: str) -> Any:
    """Return the text as argparse passes it to the field; raises ValueError if argparse refuses it."""
    kind, optional = text_kind(written)
    if optional and text.lower() in NOTHING:
        return None
    if kind.kind == "list":
        held = kind.holds[0] if kind.holds else "str"
        return text if held in ("any", "str") else _single(held, text)
    return _single(kind.kind, text)


def _single(kind: str, text: str) -> Any:
    if kind == "bool":
        if text.lower() not in TRUE | FALSE:
            raise ValueError(text)
        return text.lower() in TRUE
    if kind in ("int", "float"):
        if len(text) > LONGEST_NUMBER_TEXT:
            raise ValueError(text)
        return int(text) if kind == "int" else float(text)
    if kind == "dict" and text:
        raise ValueError(text)
    return text


def class_of(value: Any) -> str:
    """Return the class of a value, as schema/strict.json names it."""
    if value is None:
        return "null"
    for name, kind in _CLASSES.items():
        if isinstance(value, kind):
            return name
    return "other"


def of_type(written: str, value: Any) -> bool:
    """Return whether a value is of a type as it is: all numbers are alike, texts are not numbers."""
    alternatives, optional = parse_type(written)
    kinds = {one.kind for one in alternatives}
    if value is None:
        return optional
    if isinstance(value, int | float):
        return bool(kinds & {"int", "float", "bool", "any"})
    if isinstance(value, str) and not kinds & {"str", "one_of", "any"}:
        return False
    if isinstance(value, list) and "list" in kinds:
        return True
    return accepts(written, value)


def will_do(written: str, value: Any) -> bool:
    """Return whether a value of another type works anyway: a single value for a text or list, null for no."""
    alternatives, _ = parse_type(written)
    kinds = {one.kind for one in alternatives}
    if value is None:
        return "bool" in kinds
    single = not isinstance(value, dict | list | tuple | set)
    if kinds & {"str", "list"} and single and not (value is False and "one_of" in kinds):
        return True
    return "dict" in kinds and isinstance(value, str) and value.startswith("{")
