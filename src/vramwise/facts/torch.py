"""Which torch versions have a known allocator, and parsing of version strings."""

from __future__ import annotations

import re
from dataclasses import replace

from vramwise.errors import VramwiseError
from vramwise.types import Origin, Release

TorchVersion = tuple[int, int]

OLDEST_TORCH: TorchVersion = (2, 2)
NEWEST_TORCH: TorchVersion = (2, 15)
# Of newer ones no run was recorded: 2.14 and 2.15 have the options, constants and order of 2.13 by their headers and
# libraries. Two functions of 2.15's allocator changed size: `alloc_block`, for requests beyond
# `expandable_segments_reserve` (unset, nothing changes: pytorch/pytorch #192269), and `free_block`, unknown why.
NEWEST_RECORDED: TorchVersion = (2, 13)

# The lowest CUDA capability for which the default build has kernels, since a release. CUDA 12.8 drops Maxwell and
# Pascal, CUDA 13 also Volta (pytorch/pytorch issues 157517, 172352). The CUDA 12.6 build has kernels for all three; the
# last release with one is 2.14 (issue 190385).
_OLDEST_CARDS: dict[TorchVersion, tuple[int, int]] = {(2, 8): (7, 0), (2, 11): (7, 5)}
LAST_CUDA_12: TorchVersion = (2, 14)

_VERSION = re.compile(r"^\s*v?(\d{1,3})\.(\d{1,3})(?:\.\d+)?(?:[.\-+]?[a-z][\w.+\-]*)?\s*$", re.IGNORECASE | re.ASCII)


def parse_torch_version(text: str) -> TorchVersion:
    """Return (2, 8) for `2.8`, `2.8.1+cu128`; also parses `v2.9.0a0+git12`.

    Raises VramwiseError for a version whose allocator is unknown.
    """
    match = _VERSION.match(text)
    if match is None:
        raise VramwiseError(f"'{text[:40]}' is not a torch version: write it like 2.8 or 2.8.1+cu128")
    version = (int(match[1]), int(match[2]))
    if not OLDEST_TORCH <= version <= NEWEST_TORCH:
        raise VramwiseError(
            f"torch {shown(version)} is not supported: the known allocators are {shown(OLDEST_TORCH)} to "
            f"{shown(NEWEST_TORCH)}"
        )
    return version


def known_torch(found: Release | None) -> Release:
    """Return a torch whose allocator is known.

    An unknown version becomes the nearest known one. Raises VramwiseError if a requested version is not one at all.
    """
    match = None if found is None else _VERSION.match(found.version)
    if found is not None and match is None and found.origin.kind == "option":
        raise VramwiseError(f"'{found.version[:40]}' is not a torch version: write it like 2.8 or 2.8.1+cu128")
    if found is None or match is None:
        return Release(version=shown(NEWEST_TORCH), origin=Origin(kind="assumed", why="the newest known"))
    version = (int(match[1]), int(match[2]))
    if OLDEST_TORCH <= version <= NEWEST_TORCH:
        return replace(found, version=found.version.strip().removeprefix("v"))
    nearest = min(max(version, OLDEST_TORCH), NEWEST_TORCH)
    if found.origin.kind == "assumed":
        return replace(found, version=shown(nearest))
    why = f"{found.origin.why} is {found.version}, whose allocator is unknown: treated as {shown(nearest)}"
    said = found.version.strip().removeprefix("v")
    return Release(
        version=shown(nearest),
        origin=replace(found.origin, why=why),
        said=said,
        age="older" if version < OLDEST_TORCH else "newer",
    )


def oldest_card(torch: TorchVersion) -> tuple[int, int]:
    """Return the lowest CUDA capability for which this torch's default build has kernels."""
    return max((card for since, card in _OLDEST_CARDS.items() if torch >= since), default=(0, 0))


def shown(version: TorchVersion) -> str:
    """Return the version as text: `2.8`."""
    return f"{version[0]}.{version[1]}"
