"""Encodes rows as LLaMA-Factory's stage sft does: alpaca or sharegpt, through a text template.

Follows data/converter.py, data/template.py and data/processor/supervised.py of 0.9.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vramwise.training.worker.prompts import IGNORED, Sample, require_token, sample_of
from vramwise.training.worker.rows import Row
from vramwise.training.worker.thoughts import Pair, Thoughts, Turn


def llamafactory_samples(row: Row, block: Mapping[str, Any], tokenizer: Any) -> Iterator[Sample]:
    """Yield the sample of one row; nothing for a row that LLaMA-Factory drops."""
    chat = block["formatting"] == "sharegpt"
    turns, system = _from_conversation(row, block) if chat else _from_columns(row, block["columns"])
    if not turns:
        return
    template = block["template"]
    thoughts = Thoughts.of(block)
    turns = turns if thoughts is None else thoughts.as_shown(turns)
    pairs = _encoded(turns, system or template["default_system"], template, tokenizer)
    if thoughts is not None:
        pairs = thoughts.with_empty_ones(turns, pairs, tokenizer)
    yield sample_of(*_joined(pairs, block, tokenizer))


def _from_columns(row: Row, columns: Mapping[str, str | None]) -> tuple[list[Turn], str]:
    def cell(name: str) -> Any:
        column = columns.get(name)
        return row.get(column) if column else None

    asked = "\n".join(str(part) for part in (cell("prompt"), cell("query")) if part)
    history = [(str(before), str(after)) for before, after in cell("history") or ()]
    answer = cell("response")
    return ([*history, (asked, answer)] if isinstance(answer, str) else []), str(cell("system") or "")


def _from_conversation(row: Row, block: Mapping[str, Any]) -> tuple[list[Turn], str]:
    columns, tags = block["columns"], block["tags"]
    messages = list(row[columns["messages"]])
    role, content = tags["role_tag"], tags["content_tag"]
    system = str(row.get(columns["system"]) or "") if columns.get("system") else ""
    if messages and tags.get("system_tag") and messages[0][role] == tags["system_tag"]:
        system = str(messages.pop(0)[content])
    asked, answers = messages[::2], messages[1::2]
    broken = len(asked) != len(answers) or any(one[role] != tags["user_tag"] for one in asked)
    if broken or any(one[role] != tags["assistant_tag"] for one in answers):
        return [], system
    return [(str(one[content]), str(two[content])) for one, two in zip(asked, answers, strict=True)], system


def _encoded(turns: Sequence[Turn], system: str, template: Mapping[str, Any], tokenizer: Any) -> list[Pair]:
    pairs = []
    for number, (asked, answer) in enumerate(turns):
        before = list(template["prefix"]) if number == 0 else []
        if number == 0 and system and template["system_in_user"]:
            asked = str(_filled(template["system"], system)[0]) + asked
        elif number == 0 and system:
            before += _filled(template["system"], system)
        source = [*before, *_filled(template["user"], asked, str(number))]
        pairs.append((_ids(source, tokenizer), _ids(_filled(template["assistant"], answer), tokenizer)))
    return pairs


def _filled(pieces: Sequence[Any], content: str, number: str = "") -> list[Any]:
    return [
        one.replace("{{content}}", content, 1).replace("{{idx}}", number, 1) if isinstance(one, str) else one
        for one in pieces
    ]


def _ids(pieces: Sequence[Any], tokenizer: Any) -> list[int]:
    """Encode piece by piece: tokens never merge across pieces."""
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, str):
            ids += tokenizer.encode(piece, add_special_tokens=False) if piece else []
        elif "token" in piece:
            require_token(tokenizer, piece["token"])
            ids.append(tokenizer.convert_tokens_to_ids(piece["token"]))
        else:
            special = getattr(tokenizer, f"{piece['special']}_id")
            ids += [] if special is None else [special]
    return ids


def _joined(pairs: Sequence[Pair], block: Mapping[str, Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    """Join turns up to the length limit; with `last_turn_only`, the last turn comes first and only it is trained on."""
    closes, last_only = block["template"]["efficient_eos"], block["last_turn_only"]
    parts: list[Pair] = []
    used = 1 if closes else 0
    for number, (source, target) in enumerate(reversed(pairs) if last_only else pairs):
        if used >= block["longest"]:
            break
        source_room, target_room = _shares(len(source), len(target), block["longest"] - used)
        source, target = source[:source_room], target[:target_room]
        used += len(source) + len(target)
        asked = source if block["train_on_prompt"] else [IGNORED] * len(source)
        if closes and number and source and not block["train_on_prompt"]:
            asked[0] = tokenizer.eos_token_id
        learnt = [IGNORED] * len(target) if last_only and number else target
        parts.append(([*source, *target], [*asked, *learnt]))
    parts = parts[::-1] if last_only else parts
    end = [tokenizer.eos_token_id] if closes else []
    ids, labels = ([token for part in parts for token in part[side]] for side in (0, 1))
    return [*ids, *end], [*labels, *end]


def _shares(source: int, target: int, room: int) -> tuple[int, int]:
    """Return how much of a question and its answer is kept: the shorter one whole, or both in proportion."""
    if 2 * target < room:
        most = room
    elif 2 * source < room:
        most = room - source
    else:
        most = int(room * (target / (source + target)))
    kept = min(most, target)
    return min(max(room - kept, 0), source), kept
