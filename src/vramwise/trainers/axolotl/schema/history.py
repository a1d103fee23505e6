"""Since when and until when Axolotl has a key or a name, across the known versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from vramwise.trainers.axolotl.schema.version import Schema, known_releases, schema_of_version


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """When a key or name appeared and disappeared.

    `since` None: the oldest known version has it. `gone` None: the newest has it.
    """

    name: str
    since: str | None
    gone: str | None
    successor: str | None  # what the newest version reads instead

    def known_in(self, version: str) -> bool:
        """Return whether this version has it."""
        versions = known_releases()
        at = versions.index(version)
        came = versions.index(self.since) if self.since else 0
        return came <= at < (versions.index(self.gone) if self.gone else len(versions))


def short(version: str) -> str:
    """Return the common name of a release: `0.21` for `0.21.0`."""
    return version.removesuffix(".0")


def elsewhere(found: History | None, version: str) -> str:
    """Return which other version has a name that this one lacks: `was added in Axolotl 0.21`; "" if none has it."""
    if found is None or found.known_in(version):
        return ""
    versions = known_releases()
    if found.since and versions.index(version) < versions.index(found.since):
        return f"was added in Axolotl {short(found.since)}"
    return f"was removed in Axolotl {short(found.gone)}" if found.gone else ""


@cache
def history(key: str) -> History | None:
    """Return when a key appeared and disappeared: top-level, of a plugin or of a block.

    `fsdp_config.offload_params` is a key of a block. None for a key that no known version has, and none since 0.5.
    """
    return _history(key, lambda one: one.key_type(key) is not None)


@cache
def value_history(key: str, name: str) -> History | None:
    """Return the history of a name that a key accepts: an optimizer, attention, adapter, scheduler or plugin."""
    known = _NAMES.get(key)
    return _history(name, lambda one: name in known(one)) if known else None


_NAMES: dict[str, Callable[[Schema], frozenset[str]]] = {
    "optimizer": Schema.optimizers,
    "attn_implementation": Schema.attn_implementations,
    "adapter": lambda one: one.adapters() | frozenset(one.plugin_adapters()),
    "lr_scheduler": Schema.lr_schedulers,
    "plugins": lambda one: frozenset(one.known_plugins()),
}


def _history(name: str, has: Callable[[Schema], bool]) -> History | None:
    versions = known_releases()
    holders = [version for version in versions if has(schema_of_version(version))]
    if not holders:
        return None
    after = versions[versions.index(holders[-1]) + 1 :]
    fact = schema_of_version(versions[-1]).deprecations().get(name)
    return History(
        name=name,
        since=holders[0] if holders[0] != versions[0] else None,
        gone=after[0] if after else None,
        successor=fact.successor if fact else None,
    )
