"""The allocator variables that the `axolotl` command sets. Source: docs/axolotl.md, "The allocator"."""

from __future__ import annotations

from vramwise.allocator.settings import CUDA_VARIABLE, GENERIC_VARIABLE
from vramwise.types import Target


def added_variables(target: Target) -> dict[str, str]:
    """Return what the command sets unless the user has; other launchers (`python -m`, accelerate) bypass it."""
    if target.launcher != "cli":
        return {}
    if target.torch >= (2, 9) and GENERIC_VARIABLE not in target.alloc_env:
        return {GENERIC_VARIABLE: "expandable_segments:True"}
    if target.torch >= (2, 2) and CUDA_VARIABLE not in target.alloc_env:
        return {CUDA_VARIABLE: "expandable_segments:True,roundup_power2_divisions:16"}
    return {}
