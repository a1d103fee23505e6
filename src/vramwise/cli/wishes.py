"""`predict` without a file: options that describe a run, and the config made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from vramwise.cli.options import Decorated
from vramwise.errors import VramwiseError
from vramwise.trainers.compose import METHODS, composed
from vramwise.trainers.wishes import Wishes

_COUNT = click.IntRange(min=1)
_OPTIONS = (
    click.option(
        "--adapter", type=click.Choice(METHODS), help="Without CONFIG: training method (none = full fine-tune)."
    ),
    click.option("--rank", type=_COUNT, metavar="N", help="Without CONFIG: LoRA rank."),
    click.option("--sequence-len", type=_COUNT, metavar="N", help="Without CONFIG: tokens per row."),
    click.option("--micro-batch", type=_COUNT, metavar="N", help="Without CONFIG: rows per micro-batch."),
    click.option("--accumulation", type=_COUNT, metavar="N", help="Without CONFIG: micro-batches per optimizer step."),
    click.option("--optimizer", metavar="NAME", help="Without CONFIG: optimizer."),
    click.option("--checkpointing/--no-checkpointing", default=None, help="Without CONFIG: gradient checkpointing."),
    click.option("--attention", metavar="NAME", help="Without CONFIG: attention: sdpa, flash_attention_2, eager…"),
    click.option("--packing/--no-packing", default=None, help="Without CONFIG: pack several samples into a row."),
    click.option(
        "--fused-loss", is_flag=True, default=None, help="Without CONFIG: fused loss that never holds all logits."
    ),
    click.option(
        "--eval-batch", type=_COUNT, metavar="N", help="Without CONFIG: evaluate, with this many rows per batch."
    ),
)
_NAMES = tuple(field.name for field in fields(Wishes) if field.name != "model")


def wish_options(command: Decorated) -> Decorated:
    """Add --adapter, --rank, --sequence-len and the other options for a run without a file."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def taken(asked: dict[str, Any]) -> dict[str, Any]:
    """Remove the run options from `asked` and return those that were given."""
    found = {name: asked.pop(name) for name in _NAMES}
    return {name: value for name, value in found.items() if value is not None}


def refuse_with_a_file(wished: Mapping[str, Any]) -> None:
    """Raise VramwiseError if run options are combined with a file."""
    if wished:
        name = _word(next(iter(wished)))
        raise VramwiseError(f"{name} works only without CONFIG: set it in the file, or try it with --what-if")


def composed_run(model: str | None, wished: Mapping[str, Any], trainer: str | None) -> tuple[str, Mapping[str, Any]]:
    """Return the trainer's name and the config values for these options; raises VramwiseError without a model."""
    if not model:
        raise VramwiseError("expected a config or a model, e.g. vramwise predict --model meta-llama/Llama-3.2-1B")
    return composed(model, wished, trainer)


def as_words(wished: Mapping[str, Any]) -> list[str]:
    """Return the options as command-line words."""
    words = []
    for name, value in wished.items():
        if value is False:
            words.append(_word(name).replace("--", "--no-"))
        else:
            words += [_word(name)] if value is True else [_word(name), str(value)]
    return words


def _word(name: str) -> str:
    return f"--{name.replace('_', '-')}"
