"""What is refused: an edit that would touch something else, a file beyond its bound."""

from __future__ import annotations

from vramwise.budget.limits import CONFIG_BYTES
from vramwise.errors import ConfigError, VramwiseError
from vramwise.units import mib


class EditRefused(VramwiseError):  # noqa: N818 (it reads as what happened)
    """An edit that would touch something else. `by_hand`: the sentence says how a person makes it."""

    def __init__(self, message: str, *, by_hand: bool = False) -> None:
        super().__init__(message)
        self.by_hand = by_hand


def too_large(most: int = CONFIG_BYTES) -> ConfigError:
    """The refusal of a file of more than so many bytes."""
    return ConfigError(
        f"this file is larger than {mib(most)}; a config is a few kilobytes: name the config, not the data"
    )
