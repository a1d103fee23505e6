"""The part of a row that is trained on: its texts, by the column names of common formats, for any trainer.

Also how many tokens of each sample have labels, depending on what a run puts labels on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Tokens that templates add to a row: estimates, reported as such.
_PER_MESSAGE = 8
_PER_PROMPT = 40
_PER_TEXT = 2
_MESSAGES = ("messages", "conversations", "conversation")
_PROMPTS = (
    ("instruction", "input", "output", "response", "system"),
    ("prompt", "completion", "response", "system"),
    ("question", "context", "answer", "answers"),
    ("query", "response"),
)
_TEXTS = ("text", "content", "document", "body")
_PAIRS = (("chosen", "rejected"), ("chosen_response", "rejected_response"))
_MOST_DEPTH = 8
# Fields of a message that are not content.
_NO_TEXTS = frozenset(("role", "from", "type", "id"))
# Columns and message roles that hold the model's answers.
_ANSWERS = ("output", "response", "completion", "answer", "answers")
_SPEAKERS = ("assistant", "gpt", "model", "bot", "chatgpt")
# The label of a token that is not trained on, and masks that mark those that are.
_UNLABELLED = -100
_MASKS = ("completion_mask", "assistant_masks")


@dataclass(frozen=True, slots=True)
class Sample:
    """One text to tokenise, or its length if the row states it; `extra`: tokens that a template adds.

    The text is UTF-8: one wide character makes Python's own text four times as large. `answers`: the sizes in bytes of
    the model's parts, in order; `prompted`: the prompt is in its own column. `labelled`: how many tokens are trained
    on, if the row states it.
    """

    text: bytes = b""
    extra: int = 0
    tokens: int | None = None
    answers: tuple[int, ...] = ()
    prompted: bool = False
    labelled: int | None = None


def samples_of(row: Mapping[str, Any], columns: Sequence[str] = ()) -> tuple[Sample, ...]:
    """Return one sample; two for a row that compares two answers (chosen first); none if there is no text."""
    for names in _PAIRS:
        if all(row.get(name) for name in names):
            prompt = _joined([row.get("system"), row.get("prompt") or row.get("question")])
            return tuple(_together(prompt, row[name]) for name in names)
    known = _stated(row)
    if known is not None:
        return (Sample(tokens=known, labelled=_labels(row, known)),)
    chosen = _chosen(row, columns)
    return (chosen,) if chosen is not None and chosen.text else ()


def _together(prompt: bytes, answer: Any) -> Sample:
    """Return the sample of a prompt and an answer.

    An answer that is a whole conversation already contains the prompt.
    """
    text = _joined(answer)
    if isinstance(answer, list) and len(answer) > 1:
        prompt = b""
    extra = _PER_MESSAGE * (max(1, len(answer)) if isinstance(answer, list | Mapping) else 2)
    answers = (len(text),) if prompt else _answers(answer) if isinstance(answer, list) else ()
    return Sample(text=prompt + text, extra=extra, answers=answers, prompted=bool(answers))


def _labels(row: Mapping[str, Any], length: int) -> int | None:
    """Return how many tokens have labels or are in a mask; None if the row has neither."""
    labels = row.get("labels")
    if isinstance(labels, list) and len(labels) == length:
        return len(labels) - labels.count(_UNLABELLED)
    masks = [row[name] for name in _MASKS if isinstance(row.get(name), list) and len(row[name]) == length]
    return sum(all(bits) for bits in zip(*masks, strict=True)) if masks else None


def _stated(row: Mapping[str, Any]) -> int | None:
    ids = row.get("input_ids")
    if isinstance(ids, list) and ids:
        return len(ids)
    length = row.get("length")
    return length if isinstance(length, int) and not isinstance(length, bool) and 0 < length < 2**31 else None


def _chosen(row: Mapping[str, Any], columns: Sequence[str]) -> Sample | None:
    said = [name for name in columns if row.get(name)]
    if said:
        return _of_columns(row, said)
    for name in _MESSAGES:
        if isinstance(row.get(name), list):
            return _of_columns(row, [name])
    for names in _PROMPTS:
        found = [name for name in names if row.get(name)]
        if len(found) > 1:
            return _of_columns(row, found, extra=_PER_PROMPT)
    for name in _TEXTS:
        if isinstance(row.get(name), str):
            return _of_columns(row, [name])
    return Sample(text=_joined(row), extra=_PER_TEXT)


def _of_columns(row: Mapping[str, Any], names: Sequence[str], extra: int = _PER_TEXT) -> Sample:
    messages = sum(len(row[name]) for name in names if isinstance(row[name], list))
    text = b"".join(_joined(row[name]) for name in names)
    extra = _PER_MESSAGE * messages if messages else extra
    if "prompt" in names and "completion" in names:  # turns of the prompt are not trained on
        return Sample(text=text, extra=extra, answers=(len(_joined(row["completion"])),), prompted=True)
    return Sample(text=text, extra=extra, answers=tuple(one for name in names for one in _answers(row[name], name)))


def _answers(value: Any, name: str = "") -> tuple[int, ...]:
    """Return the sizes of the model's texts in a column: all of an answer column, or its turns of a conversation."""
    if isinstance(value, list) and name not in ("answers",):
        turns = [turn for turn in value if isinstance(turn, dict)]
        spoken = [turn for turn in turns if str(turn.get("role", turn.get("from"))).lower() in _SPEAKERS]
        return tuple(len(_joined(turn)) for turn in spoken)
    return (len(_joined(value)),) if name in _ANSWERS else ()


def _joined(value: Any) -> bytes:
    found: list[str] = []
    _collect(value, found, 0)
    return "".join(found).encode("utf-8", "surrogatepass")


def _collect(value: Any, found: list[str], depth: int) -> None:
    """Collect every text inside; for messages only the content, not the roles."""
    if isinstance(value, str):
        found.append(value)
    elif depth < _MOST_DEPTH and isinstance(value, dict):
        for key, item in value.items():
            if key not in _NO_TEXTS:
                _collect(item, found, depth + 1)
    elif depth < _MOST_DEPTH and isinstance(value, list):
        for item in value:
            if isinstance(item, (str, dict, list)):  # a row may hold millions of numbers
                _collect(item, found, depth + 1)


# Tokens that a template adds after an answer and that are trained on with it; an estimate.
_END = 2


def labelled_by(samples: Sequence[Sample], tokens: Sequence[int]) -> Mapping[str, Sequence[int]] | None:
    """Return the trained tokens of each sample for every value of `RunSpec.labels_on`.

    None if no row says which part is an answer. An answer's share of the tokens equals its share of the text.
    """
    if not any(sample.answers or sample.labelled is not None for sample in samples):
        return None
    pairs = list(zip(samples, tokens, strict=True))
    stated = any(sample.labelled is not None for sample in samples)
    return {
        **({"all": [_stated_or_all(one, count) for one, count in pairs]} if stated else {}),
        "completions": [
            _in_answers(one, count, one.answers) if one.prompted else _stated_or_all(one, count) for one, count in pairs
        ],
        "answers": [_in_answers(one, count, one.answers) for one, count in pairs],
        "last_answer": [_in_answers(one, count, one.answers[-1:]) for one, count in pairs],
    }


def _stated_or_all(sample: Sample, tokens: int) -> int:
    return tokens if sample.labelled is None else sample.labelled


def _in_answers(sample: Sample, tokens: int, answers: Sequence[int]) -> int:
    if sample.labelled is not None or not sample.answers:
        return _stated_or_all(sample, tokens)
    plain = max(0, tokens - sample.extra)
    return min(tokens, round(plain * sum(answers) / max(1, len(sample.text))) + _END * len(answers))
