"""Recognize which common format a data file has, by the columns of its first rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import Budget
from vramwise.opening.data.rows import KINDS, Row, data_files, read_rows
from vramwise.trainers.starting import FORMATS, Source

# Rows to examine: a file has one format throughout.
_LOOKED_AT = 50
_ANSWERS = ("output", "response")
_ROLES = (("role", "content"), ("from", "value"))
_SPEAKERS = (("user", "human"), ("assistant", "gpt"))
_PROMPTS = (("prompt", ("completion", "response")), ("question", ("answer",)), ("query", ("response",)))
_TEXTS = ("text", "content", "document", "body")

Found = dict[str, Any]


def recognise_data(name: str) -> Source:
    """Return the format of a data file or folder. Raises VramwiseError with the known formats if it has none."""
    path = Path(name)
    files = data_files(path)
    rows = list(islice(read_rows(files[0], Budget()), _LOOKED_AT))
    found = _format_of(rows)
    if found is None:
        raise VramwiseError(_unknown(name, rows))
    kind = KINDS.get(files[0].suffix.lower(), "json")
    return Source(path=name, kind=kind, folder=path.is_dir(), **found)


def _unknown(name: str, rows: Sequence[Row]) -> str:
    known = "; ".join(FORMATS.values())
    if not rows or not rows[0]:
        return f"{name} has no rows. Known formats: {known}"
    first = _columns(rows[0])
    other = next((number for number, row in enumerate(rows, 1) if _columns(row) != first and _named(row)), None)
    if _named(rows[0]) and other is not None:
        return (
            f"the rows of {name} have different formats: row 1 has {first}, row {other} has "
            f"{_columns(rows[other - 1])}; write one format per file"
        )
    if all(_rated(row) for row in rows):
        return (
            f"{name} rates its answers (label): that is data for KTO, which new does not write configs for; keep the "
            "good answers and drop the column label to train on those. Known formats: " + known
        )
    return f"the format of {name} is unknown (columns: {first}). Known formats: {known}"


def _columns(row: Row) -> str:
    return ", ".join(map(str, row))[:120]


def _named(row: Row) -> bool:
    return _format_of([row]) is not None


def _rated(row: Row) -> bool:
    """Whether the row rates its answer as good or bad."""
    return isinstance(row.get("label"), bool)


def _format_of(rows: Sequence[Row]) -> Found | None:
    """Return the first format that every row has, or None."""
    for recognise in _RECOGNISERS:
        found = [recognise(row) for row in rows]
        if found and all(one is not None for one in found):
            return _joined([one for one in found if one is not None])
    return None


def _joined(found: Sequence[Found]) -> Found:
    """Merge what the rows say: an optional column counts if any row has it."""
    columns: dict[str, str] = {}
    for one in found:
        columns |= one["columns"]
    speakers = next((one["speakers"] for one in found if one.get("speakers")), None)
    return {**found[0], "columns": columns, **({"speakers": speakers} if speakers else {})}


def _pairs(row: Row) -> Found | None:
    chosen, rejected, prompt = (row.get(name) for name in ("chosen", "rejected", "prompt"))
    if not chosen or type(chosen) is not type(rejected):
        return None
    columns = {"chosen": "chosen", "rejected": "rejected"}
    turns = _messages(chosen) is not None
    if isinstance(chosen, str) and not isinstance(prompt, str):
        return None
    if turns and not prompt:
        return {"format": "pairs", "columns": columns, "turns": True, "shared_turns": True}
    if not turns and not isinstance(chosen, str):
        return None
    return {"format": "pairs", "columns": {"prompt": "prompt", **columns}, "turns": turns}


def _chat(row: Row) -> Found | None:
    for name in ("messages", "conversations", "conversation"):
        found = _messages(row.get(name))
        if found is not None:
            return {"format": "chat", "columns": {"messages": name}, **found}
    return None


def _messages(value: Any) -> Found | None:
    """Return the keys of a list of messages and the speakers; None if it is not such a list."""
    if not isinstance(value, list) or not value:
        return None
    for role, content in _ROLES:
        if all(isinstance(turn, Mapping) and role in turn and content in turn for turn in value):
            roles = [str(turn[role]) for turn in value]
            speakers = tuple(next((one for one in roles if one in names), names[0]) for names in _SPEAKERS)
            return {"role": role, "content": content, "speakers": speakers}
    return None


def _alpaca(row: Row) -> Found | None:
    answer = next((name for name in _ANSWERS if isinstance(row.get(name), str)), None)
    if not isinstance(row.get("instruction"), str) or answer is None:
        return None
    more = {name: name for name in ("input", "system") if isinstance(row.get(name), str)}
    return {"format": "alpaca", "columns": {"instruction": "instruction", **more, "output": answer}}


def _prompt(row: Row) -> Found | None:
    if _rated(row):
        return None
    for prompt, answers in _PROMPTS:
        answer = next((name for name in answers if row.get(name)), None)
        if row.get(prompt) and answer is not None and type(row[prompt]) is type(row[answer]):
            turns = _messages(row[prompt]) is not None
            if turns or isinstance(row[prompt], str):
                return {"format": "prompt", "columns": {"prompt": prompt, "completion": answer}, "turns": turns}
    return None


def _text(row: Row) -> Found | None:
    name = next((name for name in _TEXTS if isinstance(row.get(name), str)), None)
    return None if name is None else {"format": "text", "columns": {"text": name}}


_RECOGNISERS: tuple[Callable[[Row], Found | None], ...] = (_pairs, _chat, _alpaca, _prompt, _text)
