"""How TRL starts a run: its `env:` map, and the accelerate file that `accelerate_config` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.allocator.variables import VARIABLES
from vramwise.trainers.arguments.resolve.accelerate import Accelerate, launched, read_accelerate
from vramwise.trainers.base import SideFiles

KEY = "accelerate_config"
_ZERO = {
    stage: {
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "bf16",
        "deepspeed_config": {
            "zero_stage": stage,
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
        },
    }
    for stage in (1, 2, 3)
}
# The files that TRL ships under these names (accelerate_configs/ of 1.16), as far as they affect memory.
SHIPPED: Mapping[str, Mapping[str, Any]] = {
    "single_gpu": {"distributed_type": "NO", "mixed_precision": "bf16"},
    "multi_gpu": {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16"},
    "zero1": _ZERO[1],
    "zero2": _ZERO[2],
    "zero3": _ZERO[3],
    "fsdp1": {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "fsdp_config": {
            "fsdp_version": 1,
            "fsdp_activation_checkpointing": False,
            "fsdp_offload_params": False,
            "fsdp_state_dict_type": "FULL_STATE_DICT",
        },
    },
    "fsdp2": {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_activation_checkpointing": False,
            "fsdp_offload_params": False,
            "fsdp_reshard_after_forward": True,
            "fsdp_state_dict_type": "FULL_STATE_DICT",
        },
    },
}


def accelerate_of(values: Mapping[str, Any], files: SideFiles, words: Mapping[str, str]) -> Accelerate:
    """Return the settings of `accelerate_config` (or accelerate's `config_file`), else those of a launch line."""
    for key in (KEY, "config_file"):
        name = values.get(key)
        if isinstance(name, str) and name:
            content = files.get(name) or (SHIPPED.get(name) if key == KEY else None)
            return read_accelerate(content, key=key, name=name)
    return launched(words, files) if words else Accelerate()


def allocator_variables(values: Mapping[str, Any]) -> dict[str, str]:
    """Return torch's allocator variables in the `env:` map, which overrides the environment."""
    block = values.get("env")
    found = block if isinstance(block, Mapping) else {}
    return {name: str(found[name]) for name in VARIABLES if name in found}
