"""Axolotl's vocabulary: keys and their types, plugins, optimizers, attention names, what was renamed or removed.

By version: `schema_in(stack)` has it all for one, `history` tells since when there is a key.
"""

from __future__ import annotations

from vramwise.trainers.axolotl.schema.history import History, elsewhere, history, short, value_history
from vramwise.trainers.axolotl.schema.version import Deprecation, Schema, known_releases, schema_of_version
from vramwise.trainers.names import suggest
from vramwise.types import RunSpec, Stack

__all__ = [
    "Deprecation",
    "History",
    "Schema",
    "elsewhere",
    "history",
    "known_releases",
    "releases",
    "schema_in",
    "schema_of",
    "schema_of_version",
    "short",
    "suggest",
    "value_history",
]


def schema_in(stack: Stack) -> Schema:
    """What the Axolotl of a stack knows."""
    return schema_of_version(stack.releases["axolotl"].version)


def schema_of(run: RunSpec) -> Schema:
    """What the Axolotl that does this run knows."""
    return schema_in(run.target.stack)


def releases() -> dict[str, dict[str, str]]:
    """Known versions, the oldest first, with the lowest version of each package that it installs with."""
    return {
        version: {package: _lowest(wanted) for package, wanted in schema_of_version(version).pins.items()}
        for version in known_releases()
    }


def _lowest(wanted: str) -> str:
    return wanted.split(",")[0].lstrip("=>")
