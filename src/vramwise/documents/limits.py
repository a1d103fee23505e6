"""How large a config file may be, and the sentence for one that is larger."""

from __future__ import annotations

from vramwise.budget.limits import CONFIG_BYTES
from vramwise.errors import ConfigError
from vramwise.units import mib


def too_large(most: int = CONFIG_BYTES) -> ConfigError:
    """The refusal of a file of more than so many bytes."""
    return ConfigError(f"this file is larger than {mib(most)}: is it the config, not the data?")
