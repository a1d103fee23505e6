"""A new config for users who have none yet: the same verb as `vramwise new`, without files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.options import NewOptions
from vramwise.page.desk import options_of
from vramwise.render.new_text import further, verdict
from vramwise.verbs.new import new

_COUNTS = ("rank", "sequence_len", "batch", "epochs")
_WORDS = ("method", "data_format")


def started(request: Mapping[str, Any], progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Return a config for `wishes` that fits the card of `settings`.

    `wishes`: model, trainer, method, data_format, batch, sequence_len, rank, epochs. Raises VramwiseError, with what
    would fit, if nothing does.
    """
    wishes = dict(request.get("wishes") or {})
    asked: dict[str, Any] = {name: _count(wishes, name) for name in _COUNTS if wishes.get(name)}
    asked |= {name: str(wishes[name]) for name in _WORDS if wishes.get(name)}
    model, trainer = (str(wishes.get(name) or "").strip() for name in ("model", "trainer"))
    if not model:
        raise VramwiseError("name a model, such as Qwen/Qwen3-8B")
    options = replace(options_of(request.get("settings") or {}), trainer=trainer or None)
    found = new(NewOptions(model=model, online=False, **asked), options, progress)
    if not found.fits:
        raise VramwiseError("; ".join([verdict(found), *further(found)]))
    return {"text": found.text, "trainer": found.subject.trainer.name, "verdict": verdict(found)}


def _count(wishes: Mapping[str, Any], name: str) -> int:
    value = wishes[name]
    if type(value) is not int or value < 1:
        raise VramwiseError(f"{name.replace('_', ' ')} must be a whole number from 1 up, not {value}")
    return value
