"""Axolotl's facts by version, from the JSON files of `make releases` beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers import axolotl
from vramwise.trainers.releases import releases_of, versioned_facts


def releases() -> Mapping[str, Mapping[str, Any]]:
    """Return version → released, python, pins; oldest first."""
    return releases_of(axolotl.__file__)


def facts(version: str) -> Mapping[str, Any]:
    """Return everything known about one version. Read-only: versions share what they have in common."""
    return versioned_facts(version, axolotl.__file__)
