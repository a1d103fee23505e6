"""Which trainers' files the embedded engine trains, what it refuses in them, and its settings for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vramwise.errors import ConfigError
from vramwise.training.embedded import huggingface, llamafactory, trl
from vramwise.training.parent import supported
from vramwise.types import Config, RunSpec


@dataclass(frozen=True, slots=True)
class Owner:
    """How the engine handles one trainer's files. `in_engine_words` is None if they already use its keys."""

    unsupported: Callable[[RunSpec], Iterator[ConfigError] | list[ConfigError]]
    in_engine_words: Callable[[RunSpec], dict[str, Any]] | None


_OWN = Owner(supported.unsupported, None)
OWNERS: Mapping[str, Owner] = {
    "axolotl": _OWN,
    "transformers": _OWN,
    "trl": Owner(trl.unsupported, trl.in_engine_words),
    "llamafactory": Owner(llamafactory.unsupported, llamafactory.in_engine_words),
    "hf-trainer": Owner(huggingface.unsupported, huggingface.in_engine_words),
}


def unsupported(run: RunSpec) -> list[ConfigError]:
    """Return what the embedded engine cannot honour in this config, in the file's order."""
    if run.trainer not in OWNERS:
        return [ConfigError(f"the embedded engine cannot train what is written for {run.trainer}")]
    return sorted(OWNERS[run.trainer].unsupported(run), key=lambda error: (error.line or 0, error.message))


def translated(run: RunSpec) -> RunSpec:
    """Return the run with its config in the engine's settings; unchanged if it already uses them."""
    words = OWNERS[run.trainer].in_engine_words
    if words is None:
        return run
    values = {key: value for key, value in words(run).items() if value is not None}
    return replace(run, config=Config(run.config.document, values, {}))
