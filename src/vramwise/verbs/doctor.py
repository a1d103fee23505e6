"""`doctor`: what is installed here, for a bug report.

Reads package metadata and asks the driver. Imports none of the packages.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from vramwise.allocator.variables import VARIABLES
from vramwise.facts.nvml import driver_version, local_gpu
from vramwise.opening.stacks import PACKAGES
from vramwise.trainers.registry import all_identities
from vramwise.types import GpuSpec

# Packages that read data, and the agents' SDK: no byte depends on them.
_MORE = ("datasets", "mcp")
# Variables that decide which card is used, and whether the hub is asked.
_VARIABLES = (*VARIABLES, "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """This machine. `packages`: name → version, None if not installed; `variables`: those that are set."""

    python: str
    system: str
    card: GpuSpec | None
    cards: int
    driver: str | None
    packages: Mapping[str, str | None]
    variables: Mapping[str, str]


def doctor() -> Installation:
    """Return what is installed here."""
    card, cards = local_gpu() or (None, 0)
    names = dict.fromkeys((*PACKAGES, *(trainer.package for trainer in all_identities()), *_MORE))
    return Installation(
        python=platform.python_version(),
        system=platform.platform(),
        card=card,
        cards=cards,
        driver=driver_version(),
        packages={name: _installed(name) for name in names},
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
