"""Encodes rows as `trl sft` does: a text, a conversation, or a prompt and its completion.

Follows SFTTrainer of TRL 1.16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.worker.prompts import IGNORED, Sample, sample_of
from vramwise.training.worker.rows import Row

_NOT_READ = ("input_ids", "images", "image", "tools", "assistant_masks", "chat_template_kwargs")
_ROLES = {"human": "user", "gpt": "assistant"}


def trl_samples(row: Row, block: Mapping[str, Any], tokenizer: Any) -> Iterator[Sample]:
    """Yield the sample of one row; nothing if truncation left nothing to train on."""
    columns = block.get("columns")
    row = {name: row[name] for name in columns} if columns else row
    unread = [name for name in _NOT_READ if row.get(name) is not None]
    if unread:
        raise VramwiseError(f"dataset {block['path']}: column {unread[0]} is not read by the embedded engine: use TRL")
    ids, prompt = _tokens(_as_chatml(row), block, tokenizer)
    only = block.get("completion_only")
    masked = prompt if only or only is None else 0
    labels = [*[IGNORED] * masked, *ids[masked:]]
    longest = block.get("longest")
    if longest is not None:
        kept = slice(-longest, None) if block.get("keep_end") else slice(longest)
        ids, labels = ids[kept], labels[kept]
        if all(label == IGNORED for label in labels):
            return
    yield sample_of(ids, labels)


def _tokens(row: Row, block: Mapping[str, Any], tokenizer: Any) -> tuple[list[int], int]:
    """Return a row's tokens, and how many of them belong to the prompt."""
    if "prompt" in row:
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, str):
            first = _text(tokenizer, prompt)
            ids = _text(tokenizer, prompt + _ended(completion, tokenizer))
        else:
            first = _chat(tokenizer, prompt, add_generation_prompt=True)
            ids = _chat(tokenizer, [*prompt, *completion])
        # tokens may merge across the boundary: the completion begins where the two differ
        return ids, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, ids, strict=False)))
    if _is_chat(row.get("messages")):
        return _chat(tokenizer, row["messages"]), 0
    return _text(tokenizer, _ended(row[block["text_field"]], tokenizer)), 0


def _as_chatml(row: Row) -> Row:
    for name in ("messages", "conversations"):
        turns = row.get(name)
        if isinstance(turns, list) and turns and isinstance(turns[0], Mapping) and "from" in turns[0]:
            turned = [{"role": _ROLES.get(one["from"], one["from"]), "content": one["value"]} for one in turns]
            return {**{key: value for key, value in row.items() if key != name}, "messages": turned}
    return row


def _is_chat(turns: Any) -> bool:
    return isinstance(turns, list) and bool(turns) and isinstance(turns[0], Mapping) and "role" in turns[0]


def _ended(text: str, tokenizer: Any) -> str:
    return text if text.endswith(tokenizer.eos_token) else text + str(tokenizer.eos_token)


def _text(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, verbose=False)["input_ids"])


def _chat(tokenizer: Any, messages: list[Any], **options: Any) -> list[int]:
    if not tokenizer.chat_template:
        raise VramwiseError("the data holds conversations, and the tokenizer has no chat template")
    return list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **options)["input_ids"])
