"""Code that a config names runs only if the user permits it with `--trust-remote-code`, never by the file alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.errors import ConfigError
from vramwise.training.sources import dataset_blocks
from vramwise.types import Config

_KEY = "trust_remote_code"


def trusted(config: Config, *, by_user: bool) -> bool:
    """Return whether the model's own code may run: requested by the config and permitted by the user.

    Raises ConfigError if it is only requested.
    """
    asking = next(_asking(config), None)
    if asking is not None and not by_user:
        place = config.place(asking)
        raise ConfigError(
            f"{asking}: true would run Python code that comes with the model or dataset, on this machine and as you; "
            "if you trust who wrote it, say so with --trust-remote-code, else remove the key",
            line=place.line if place else None,
            column=place.column if place else None,
            path=config.document.path,
        )
    return bool(config.get(_KEY, False))


def _asking(config: Config) -> Iterator[str]:
    if config.get(_KEY, False):
        yield _KEY
    for name, index, block in dataset_blocks(config):
        if block.get(_KEY):
            yield f"{name}.{index}.{_KEY}"
    for name in ("overrides_of_model_config", "model_init_kwargs"):
        written = config.get(name, {})
        if isinstance(written, Mapping) and written.get(_KEY):
            yield f"{name}.{_KEY}"
