"""What the embedded engine supports of Axolotl's files and of plain TrainingArguments, and its settings for them.

No torch. The engine's settings use Axolotl's keys, plus these, which appear in no file:

    arguments    passed to TrainingArguments unchanged; samples are blocks of joined texts
    order_seed   rows come in the order of transformers' sampler with this seed
    weights      "auto": in the data type of the checkpoint
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.errors import ConfigError
from vramwise.rules.base import Hit
from vramwise.training.embedded import axolotl, plain_arguments
from vramwise.types import Config, RunSpec

PLAIN = "hf-trainer"


def unsupported(run: RunSpec) -> list[ConfigError]:
    """Return what the embedded engine cannot honour in this config, in the file's order."""
    found = plain_arguments.unsupported(run) if run.trainer == PLAIN else axolotl.unsupported(run)
    errors = [_error(run.config, one) for one in found]
    return sorted(errors, key=lambda error: (error.line or 0, error.message))


def _error(config: Config, hit: Hit) -> ConfigError:
    place = None if hit.key is None else config.place(hit.key)
    return ConfigError(hit.message, line=place.line if place else None, column=place.column if place else None)


def translated(run: RunSpec) -> RunSpec:
    """Return the run with its config in the engine's settings; unchanged if it already uses them."""
    if run.trainer != PLAIN:
        return run
    values = {key: value for key, value in plain_arguments.in_engine_words(run).items() if value is not None}
    return replace(run, config=Config(run.config.document, values, {}))
