"""A config from a few words, for who has none yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.options import Options
from vramwise.subject import read_document
from vramwise.trainers.compose import composed

# What a page may wish, by how it is read.
_COUNTS = ("rank", "sequence_len", "micro_batch", "accumulation", "eval_batch")
_WORDS = ("adapter", "optimizer", "attention")
_SWITCHES = ("checkpointing", "packing", "fused_loss")


def started(request: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a config for `wishes`: model, trainer, adapter, sequence_len, micro_batch and the others."""
    wishes = dict(request.get("wishes") or {})
    wanted: dict[str, Any] = {name: _count(wishes, name) for name in _COUNTS if wishes.get(name)}
    wanted |= {name: str(wishes[name]) for name in _WORDS if wishes.get(name)}
    wanted |= {name: bool(wishes[name]) for name in _SWITCHES if wishes.get(name) is not None}
    model, trainer = (str(wishes.get(name) or "").strip() for name in ("model", "trainer"))
    name, values = composed(model, {"checkpointing": True, **wanted}, trainer or None)
    return {"text": read_document(values, Options(text_alone=True)).text, "trainer": name}


def _count(wishes: Mapping[str, Any], name: str) -> int:
    value = wishes[name]
    if type(value) is not int or value < 1:
        raise VramwiseError(f"{name.replace('_', ' ')} must be a whole number from 1 up, not {value}")
    return value
