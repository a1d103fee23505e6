"""The reward and the prompts of the GRPO cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def length(completions: list[Any], **_words: Any) -> list[float]:
    """A reward that varies from completion to completion."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [float(len(text) % 7) for text in texts]


def transform(_cfg: Any, *_arguments: Any, **_words: Any) -> Callable[..., dict[str, str]]:
    """How Axolotl makes a prompt of a row."""

    def prompt_of(example: dict[str, str], tokenizer: Any = None) -> dict[str, str]:
        return {"prompt": example["prompt"]}

    return prompt_of
