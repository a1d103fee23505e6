"""A config from a few words, for who has none yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.options import Options
from vramwise.subject import read_document
from vramwise.trainers.registry import TRAINERS
from vramwise.trainers.wishes import Composes, Wishes

_METHODS = ("", "lora", "qlora")


def composed(request: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a config for `wishes`: model, adapter, sequence_len, micro_batch and the others."""
    wishes = dict(request.get("wishes") or {})
    model = str(wishes.pop("model", "") or "").strip()
    if not model:
        raise VramwiseError("name a model, such as Qwen/Qwen3-8B")
    adapter = str(wishes.pop("adapter", "") or "")
    if adapter not in _METHODS:
        raise VramwiseError(f"there is no method {adapter}: choose lora, qlora, or none for all weights")
    trainer = next(one for one in TRAINERS if isinstance(one, Composes))
    wanted = Wishes(
        model=model,
        adapter=adapter or None,
        checkpointing=True,
        sequence_len=_count(wishes, "sequence_len"),
        micro_batch=_count(wishes, "micro_batch"),
    )
    values = trainer.compose(wanted)
    return {"text": read_document(values, Options(text_alone=True)).text}


def _count(wishes: Mapping[str, Any], name: str) -> int | None:
    value = wishes.get(name)
    if not value:
        return None
    if type(value) is not int or value < 1:
        raise VramwiseError(f"{name.replace('_', ' ')} must be a whole number from 1 up, not {value}")
    return value
