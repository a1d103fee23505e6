"""Words of a command line as a source: one is a path, several are a launch line."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join

import click

from vramwise.options import Command

# Programs that start trainings.
_LAUNCHERS = ("accelerate", "torchrun", "deepspeed", "trl", "llamafactory-cli", "axolotl", "python", "python3")


def from_words(words: Sequence[str]) -> str | None:
    """The path, or the launch line as a Command; None where there are no words."""
    if not words:
        return None
    if len(words) == 1:
        return words[0]
    if words[0].rpartition("/")[2] in _LAUNCHERS:
        return Command(join(words))
    raise click.UsageError(f"Got unexpected extra arguments ({' '.join(words[1:])})")


def all_from_words(words: Sequence[str]) -> tuple[str, ...]:
    """Paths as they are; a launch line as one Command."""
    launch = len(words) > 1 and words[0].rpartition("/")[2] in _LAUNCHERS
    return (Command(join(words)),) if launch else tuple(words)
