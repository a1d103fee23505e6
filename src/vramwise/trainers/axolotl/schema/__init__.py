"""Axolotl's vocabulary by version: keys and types, plugins, optimizers, attention names, renamed and removed keys.

`schema_in(stack)` returns that of one version; `history` says since when a key exists.
"""

from __future__ import annotations

from vramwise.trainers import axolotl
from vramwise.trainers.axolotl.schema.history import History, elsewhere, history, short, value_history
from vramwise.trainers.axolotl.schema.version import Deprecation, Schema, known_releases, schema_of_version
from vramwise.trainers.names import suggest
from vramwise.trainers.releases import installs
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
    """Return the schema of a stack's Axolotl version."""
    return schema_of_version(stack.releases["axolotl"].version)


def schema_of(run: RunSpec) -> Schema:
    """Return the schema of the Axolotl version of a run."""
    return schema_in(run.target.stack)


def releases() -> dict[str, dict[str, str]]:
    """Return the known versions, oldest first, with the lowest version of each package that they install with.

    Up to 0.17 torch has no upper limit: then the newest of the release's day.
    """
    return {
        version: {package: _lowest(wanted) for package, wanted in schema_of_version(version).pins.items()} | found
        for version, found in installs(axolotl.__file__).items()
    }


def _lowest(wanted: str) -> str:
    return wanted.split(",")[0].lstrip("=>")
