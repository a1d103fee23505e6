"""The allocator variables that the `axolotl` command sets. Source: docs/axolotl.md, "The allocator"."""

from __future__ import annotations

from vramwise.allocator.settings import CUDA_VARIABLE, GENERIC_VARIABLE
from vramwise.trainers.axolotl.schema import schema_in
from vramwise.types import Target


def added_variables(target: Target) -> dict[str, str]:
    """Return what the command sets unless the user has; other launchers (`python -m`, accelerate) bypass it."""
    if target.launcher != "cli":
        return {}
    schema, expands, rounds = schema_in(target.stack), "expandable_segments:True", ",roundup_power2_divisions:16"
    # set_pytorch_cuda_alloc_conf (utils/__init__.py): the newer name since 0.13, no rounding under it since 0.17
    if target.torch >= (2, 9) and schema.since("0.13.1") and GENERIC_VARIABLE not in target.alloc_env:
        return {GENERIC_VARIABLE: expands if schema.since("0.17.0") else expands + rounds}
    if target.torch >= (2, 2) and CUDA_VARIABLE not in target.alloc_env:
        return {CUDA_VARIABLE: expands + rounds}
    return {}
