"""From command-line words to a Target: which card, how many, which versions, which allocator variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from vramwise.allocator.variables import VARIABLES
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpus
from vramwise.facts.nvml import local_gpu
from vramwise.types import GpuSpec, Stack, Target

# As many as torch counts ranks.
_MOST_GPUS = 2**18


def make_target(
    *,
    stack: Stack,
    gpu: str | None = None,
    gpus: int | None = None,
    alloc_conf: str | None = None,
    launcher: str = "cli",
    accelerate: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    look_around: bool = True,
) -> Target:
    """Build the target. A card that is not named is this machine's, unless `look_around` is off."""
    if gpus is not None and gpus < 1:
        raise VramwiseError(f"--gpus {gpus}: must be at least 1")
    if gpus is not None and gpus > _MOST_GPUS:
        raise VramwiseError(f"--gpus: at most {_MOST_GPUS:,} are supported")
    if launcher not in ("cli", "module"):
        raise VramwiseError(f"launcher '{launcher}' is neither cli nor module")
    card, count = _card(gpu, gpus, look_around)
    env = os.environ if env is None else env
    return Target(
        gpu=card,
        gpus=gpus or count,
        stack=stack,
        alloc_env={name: env[name] for name in VARIABLES if name in env},
        alloc_conf=alloc_conf,
        launcher="cli" if launcher == "cli" else "module",
        accelerate=dict(accelerate or {}),
    )


def _card(name: str | None, gpus: int | None, look_around: bool) -> tuple[GpuSpec | None, int]:
    if name is not None:
        count, card = find_gpus(name)
        if count and gpus and count != gpus:
            raise VramwiseError(f"--gpu {name} means {count} cards, but --gpus is {gpus}: use only one of them")
        return card, count or 1
    if look_around:
        found = local_gpu()
        if found is not None:
            return found
    return None, 1
