"""Converts rows to token ids and labels by dataset type: alpaca, completion, chat_template/messages, input_output.

A label of -100 is not trained on. The first token of a sample is never a target (nothing predicts it), so its label is
always -100: a packed sample and the same sample alone then train on exactly the same targets. Formats follow Axolotl's
(docs/train.md says where). Handles one row at a time; data.py handles lengths and splits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.worker.rows import Row

IGNORED = -100
_INTRODUCTION = "Below is an instruction that describes a task"
_WITH_INPUT = ", paired with an input that provides further context"
_TASK = ". Write a response that appropriately completes the request."
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One tokenized sample."""

    input_ids: array[int]
    labels: array[int]

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def targets(self) -> int:
        """The number of tokens that are trained on."""
        return sum(label != IGNORED for label in self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """The config's settings for prompts, besides the dataset's own block."""

    train_on_inputs: bool = False
    sequence_len: int
    chat_template: str | None = None
    chat_template_jinja: str | None = None
    default_system_message: str | None = None


def make_sample(pieces: Sequence[tuple[Sequence[int], bool]]) -> Sample:
    """Join pieces of tokens, each trained on or not."""
    ids, labels = array("i"), array("i")
    for tokens, trained in pieces:
        ids.extend(tokens)
        labels.extend(tokens if trained else [IGNORED] * len(tokens))
    if labels:
        labels[0] = IGNORED
    return Sample(ids, labels)


def samples_of(row: Row, block: Mapping[str, Any], tokenizer: Any, settings: PromptSettings) -> Iterator[Sample]:
    """Yield the samples of one row (completion may give several); raises VramwiseError for a missing column."""
    try:
        yield from _BUILDERS[str(block["type"])](row, block, tokenizer, settings)
    except KeyError as error:
        have = ", ".join(sorted(map(str, row)))
        raise VramwiseError(
            f"dataset {block.get('path')} ({block['type']}): a row has no {error}; it has {have}"
        ) from error


def alpaca_prompt(instruction: str, given: str = "") -> str:
    """Return everything before the answer, with or without an input."""
    task = _INTRODUCTION + (_WITH_INPUT if given else "") + _TASK
    context = f"### Input:\n{given}\n\n" if given else ""
    return f"{task}\n\n### Instruction:\n{instruction}\n\n{context}### Response:\n"


def _alpaca(row: Row, block: Mapping[str, Any], tokenizer: Any, settings: PromptSettings) -> Iterator[Sample]:
    prompt = alpaca_prompt(str(row["instruction"]), str(row.get("input") or ""))
    answer = [*_tokens(tokenizer, str(row["output"])), *_eos(tokenizer)]
    yield make_sample([(_tokens(tokenizer, prompt, start=True), settings.train_on_inputs), (answer, True)])


def _completion(row: Row, block: Mapping[str, Any], tokenizer: Any, settings: PromptSettings) -> Iterator[Sample]:
    text = str(row[block.get("field") or "text"])
    tokens = [*_tokens(tokenizer, text, start=True), *_eos(tokenizer)]
    for start in range(0, len(tokens), settings.sequence_len):  # a long text becomes several samples
        yield make_sample([(tokens[start : start + settings.sequence_len], True)])


def _input_output(row: Row, block: Mapping[str, Any], tokenizer: Any, settings: PromptSettings) -> Iterator[Sample]:
    yield make_sample([(_tokens(tokenizer, str(part["text"])), bool(part["label"])) for part in row["segments"]])


def _tokens(tokenizer: Any, text: str, *, start: bool = False) -> list[int]:
    """Return the tokens of a text; at the start of a sample with the opening token, never with a closing one."""
    ids: list[int] = tokenizer(text, add_special_tokens=start, verbose=False)["input_ids"]
    if start and ids and ids[-1] == tokenizer.eos_token_id and not text.endswith(str(tokenizer.eos_token)):
        ids = ids[:-1]
    return ids


def _eos(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


def _chat(row: Row, block: Mapping[str, Any], tokenizer: Any, settings: PromptSettings) -> Iterator[Sample]:
    messages = _messages(row, block, settings)
    template = _template(block, tokenizer, settings)
    text = _render(tokenizer, template, messages)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    trained = _trained_spans(messages, block, tokenizer, template, text, train_all=settings.train_on_inputs)
    flags = [any(start <= at < end for start, end in trained) for at, _ in encoded["offset_mapping"]]
    pieces = [([token], flag) for token, flag in zip(encoded["input_ids"], flags, strict=True)]
    yield make_sample(pieces)


def _messages(row: Row, block: Mapping[str, Any], settings: PromptSettings) -> list[dict[str, Any]]:
    mapping = block.get("message_property_mappings") or {}
    role_key = str(block.get("message_field_role") or mapping.get("role") or "role")
    content_key = str(block.get("message_field_content") or mapping.get("content") or "content")
    written = block.get("roles") or {}
    roles = {name: role for role, names in written.items() for name in names} or _ROLES
    found = row[block.get("field_messages") or "messages"]
    messages = [
        {"role": roles.get(str(turn[role_key]), str(turn[role_key])), "content": turn[content_key]} for turn in found
    ]
    if settings.default_system_message and (not messages or messages[0]["role"] != "system"):
        messages.insert(0, {"role": "system", "content": settings.default_system_message})
    return messages


def _template(block: Mapping[str, Any], tokenizer: Any, settings: PromptSettings) -> str:
    usual = "chatml" if block["type"] == "messages" else "tokenizer_default"
    name = block.get("chat_template") or settings.chat_template or usual
    if name == "chatml":
        return _CHATML
    found = (block.get("chat_template_jinja") or settings.chat_template_jinja) if name == "jinja" else None
    found = found or (tokenizer.chat_template if name == "tokenizer_default" else None)
    if not isinstance(found, str):
        raise VramwiseError(
            f"dataset {block.get('path')}: the tokenizer has no chat template: set chat_template: chatml, or "
            "chat_template: jinja with chat_template_jinja"
        )
    return found


def _render(tokenizer: Any, template: str, messages: Sequence[Mapping[str, Any]], *, prompt: bool = False) -> str:
    text = tokenizer.apply_chat_template(
        list(messages), chat_template=template, tokenize=False, add_generation_prompt=prompt
    )
    return str(text)


def _trained_spans(
    messages: Sequence[Mapping[str, Any]],
    block: Mapping[str, Any],
    tokenizer: Any,
    template: str,
    text: str,
    *,
    train_all: bool,
) -> list[tuple[int, int]]:
    """Return the character spans to train on: the content of the trained roles, and the token that ends their turn."""
    if train_all:
        return [(0, len(text))]
    roles = block.get("roles_to_train") or ["assistant"]
    spans = []
    for index, message in enumerate(messages):
        if message["role"] not in roles:
            continue
        before = _opening(tokenizer, template, messages[:index], message["role"], text)
        through = _render(tokenizer, template, messages[: index + 1])
        if not text.startswith(through) or len(through) < len(before):
            raise VramwiseError(
                f"dataset {block.get('path')}: the chat template does not render turn by turn, so what to train on "
                "cannot be told; use another chat_template"
            )
        spans.append((len(before), len(before) + _turn_end(text[len(before) : len(through)], message, tokenizer)))
    return spans


def _opening(tokenizer: Any, template: str, earlier: Sequence[Mapping[str, Any]], role: str, text: str) -> str:
    """Return the text up to where the turn's own content begins."""
    if role == "assistant":
        opened = _render(tokenizer, template, earlier, prompt=True)
        if text.startswith(opened):
            return opened
    return _render(tokenizer, template, earlier) if earlier else ""


def _turn_end(turn: str, message: Mapping[str, Any], tokenizer: Any) -> int:
    """Return where the trained part of a turn ends: after its closing special token, before any line break."""
    content = str(message["content"])
    at = turn.find(content.strip())
    end = at + len(content.strip()) if at >= 0 else len(turn)
    closing = [
        turn.find(token, end) + len(token) for token in tokenizer.all_special_tokens if turn.find(token, end) >= 0
    ]
    return min(closing, default=len(turn.rstrip("\n")) if at >= 0 else len(turn))


_Builder = Callable[[Row, Mapping[str, Any], Any, PromptSettings], Iterator[Sample]]
_BUILDERS: Mapping[str, _Builder] = {
    "alpaca": _alpaca,
    "completion": _completion,
    "input_output": _input_output,
    "chat_template": _chat,
    "messages": _chat,
}
