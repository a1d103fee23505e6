"""Errors for refused edits and for files that are too large."""

from __future__ import annotations

from vramwise.errors import ConfigError, VramwiseError
from vramwise.limits.ceilings import CONFIG_BYTES
from vramwise.units import mib


class EditRefused(VramwiseError):  # noqa: N818 (it reads as what happened)
    """An edit that would change something else. `by_hand`: the message says how to make it by hand.

    `words`: what the script's command line needs for it, if that is all.
    """

    def __init__(self, message: str, *, by_hand: bool = False, words: str = "") -> None:
        super().__init__(message)
        self.by_hand = by_hand
        self.words = words


def too_large(most: int = CONFIG_BYTES) -> ConfigError:
    """Return the error for a file of more than `most` bytes."""
    return ConfigError(
        f"this file is larger than {mib(most)}; a config is a few kilobytes: name the config, not the data"
    )
