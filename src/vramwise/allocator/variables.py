"""The environment variables of torch's CUDA allocator: which settings apply, and the shell line that sets them.

The caller passes the variables that a trainer adds. `settings` defines the order in which torch reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.allocator.settings import (
    CUDA_VARIABLE,
    GENERIC_VARIABLE,
    HIP_VARIABLE,
    TorchVersion,
    effective_settings,
)
from vramwise.types import Origin, Target

VARIABLES = (CUDA_VARIABLE, HIP_VARIABLE, GENERIC_VARIABLE)
EXPANDABLE = "expandable_segments:True"


def allocator_variable(torch: TorchVersion) -> str:
    """Return the variable to set: the newest one that this torch's CUDA allocator reads."""
    return CUDA_VARIABLE if torch < (2, 10) else GENERIC_VARIABLE


def settings_in_force(target: Target, added: Mapping[str, str], whose: str) -> tuple[str, Origin]:
    """Return the allocator's settings string and its origin.

    `--alloc-conf` comes first, then the user's variables, then those in `added`. `whose` names who adds them.
    """
    if target.alloc_conf is not None:
        return target.alloc_conf, Origin(kind="option", why="--alloc-conf")
    settings, variable = effective_settings(target.torch, {**added, **target.alloc_env})
    version = f"torch {target.torch[0]}.{target.torch[1]}"
    if variable is None:
        return "", Origin(kind="default", why=f"no allocator variable that {version} reads is set")
    if variable in target.alloc_env:
        return settings, Origin(kind="environment", why=f"{variable} in the environment")
    return settings, Origin(kind="derived", why=f"{whose} sets {variable} for {version}")


def prepared_variables(target: Target) -> dict[str, str]:
    """Return the variables to set before torch is imported: `--alloc-conf`, otherwise expandable segments.

    Empty if the user's own variables apply.
    """
    if target.alloc_conf is not None:
        # every version reads this variable first, so that an inherited one cannot override it
        return {CUDA_VARIABLE: target.alloc_conf}
    if effective_settings(target.torch, target.alloc_env)[1] is not None:
        return {}
    return {allocator_variable(target.torch): EXPANDABLE}


def export_line(torch: TorchVersion) -> str:
    """Return the shell line that makes this torch use expandable segments."""
    return f"export {allocator_variable(torch)}={EXPANDABLE}"
