"""Which torch a run will use: installed here, named by the user, or assumed. Reads metadata, never imports torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from vramwise.errors import VramwiseError

TorchVersion = tuple[int, int]

# Axolotl 0.19 installs with torch 2.11 to 2.13: without a better word the oldest of them.
ASSUMED_TORCH: TorchVersion = (2, 11)
OLDEST_TORCH: TorchVersion = (2, 2)
NEWEST_TORCH: TorchVersion = (2, 13)

_VERSION = re.compile(r"^\s*v?(\d+)\.(\d+)(?:\.\d+)?(?:[.\-+]?[a-z][\w.+\-]*)?\s*$", re.IGNORECASE)


def parse_torch_version(text: str) -> TorchVersion:
    """(2, 8) from `2.8`, `2.8.1+cu128`, `v2.9.0a0+git12`. Versions whose allocator is not known are refused."""
    match = _VERSION.match(text)
    if match is None:
        raise VramwiseError(f"'{text}' is not a torch version: write it like 2.8 or 2.8.1+cu128")
    version = (int(match[1]), int(match[2]))
    if not OLDEST_TORCH <= version <= NEWEST_TORCH:
        raise VramwiseError(
            f"torch {shown(version)} is outside the versions whose allocator is known: "
            f"{shown(OLDEST_TORCH)} to {shown(NEWEST_TORCH)}"
        )
    return version


def installed_torch() -> TorchVersion | None:
    """The version installed beside vramwise, or None. One that is out of range counts as the nearest that is known."""
    for version in _installed_versions():
        match = _VERSION.match(version)
        if match is not None:
            return min(max((int(match[1]), int(match[2])), OLDEST_TORCH), NEWEST_TORCH)
    return None


def _installed_versions() -> Iterator[str]:
    """Versions by the names of metadata folders (`torch-2.11.0+cu130.dist-info`): importlib.metadata costs 50 ms."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names are all that is needed, and this is the fast way
        except OSError:  # zip files and folders that are gone
            continue
        for name in names:
            if name.startswith("torch-") and name.endswith((".dist-info", ".egg-info")):
                yield name.removeprefix("torch-").rsplit(".", 1)[0].split("-py")[0]


def shown(version: TorchVersion) -> str:
    """`2.8`"""
    return f"{version[0]}.{version[1]}"
