"""Which settings the CUDA allocator really gets: what the environment says, what Axolotl adds, what torch reads.

Source: docs/axolotl.md, "The allocator"; torch's own reading order is in `allocator.settings`.
"""

from __future__ import annotations

from vramwise.allocator.settings import effective_settings
from vramwise.types import Origin, Target

CUDA_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
NEW_VARIABLE = "PYTORCH_ALLOC_CONF"
VARIABLES = (CUDA_VARIABLE, "PYTORCH_HIP_ALLOC_CONF", NEW_VARIABLE)


def process_environment(target: Target) -> dict[str, str]:
    """The allocator variables inside the training process: the user's, and what the `axolotl` command adds."""
    env = dict(target.alloc_env)
    if target.launcher != "cli":
        return env
    if target.torch >= (2, 9) and NEW_VARIABLE not in env:
        env[NEW_VARIABLE] = "expandable_segments:True"
    elif target.torch >= (2, 2) and CUDA_VARIABLE not in env:
        env[CUDA_VARIABLE] = "expandable_segments:True,roundup_power2_divisions:16"
    return env


def effective_allocator(target: Target) -> tuple[str, Origin]:
    """The settings string in force, and why."""
    if target.alloc_conf is not None:
        return target.alloc_conf, Origin(kind="option", why="--alloc-conf")
    env = process_environment(target)
    settings, variable = effective_settings(target.torch, env)
    version = f"torch {target.torch[0]}.{target.torch[1]}"
    if variable is None:
        return "", Origin(kind="default", why=f"no allocator variable that {version} reads is set")
    if variable in target.alloc_env:
        return settings, Origin(kind="environment", why=f"{variable} in the environment")
    return settings, Origin(kind="derived", why=f"the axolotl command sets {variable} for {version}")


def export_line(torch: tuple[int, int]) -> str:
    """The exact shell line that makes this torch use expandable segments."""
    variable = CUDA_VARIABLE if torch < (2, 10) else NEW_VARIABLE
    return f"export {variable}=expandable_segments:True"
