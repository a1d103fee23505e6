"""Resolves several cards: the DeepSpeed files that LLaMA-Factory ships, and the variables that its command sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vramwise.allocator.settings import CUDA_VARIABLE
from vramwise.allocator.variables import EXPANDABLE
from vramwise.trainers.base import SideFiles
from vramwise.trainers.llamafactory.keys import PACKAGE
from vramwise.types import Target

# The release since which the command sets the allocator's variable (`cli.py` of the wheels).
_SETS_ALLOCATOR = "0.9.3"
_SHIPPED = re.compile(r"(?:^|/)ds_z([023])(_offload|_fp8)?_config\.json$")
_ON_HOST = {"device": "cpu"}
_COMMON = {"overlap_comm": False, "contiguous_gradients": True}
_BUCKETS = {"reduce_bucket_size": 5e8}
_STAGE3 = {
    "sub_group_size": 1e9,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
}
_FP8 = {
    "reduce_bucket_size": 12845056,
    "stage3_prefetch_bucket_size": 11560550,
    "stage3_param_persistence_threshold": 35840,
}


def with_shipped(files: SideFiles) -> dict[str, Mapping[str, Any] | None]:
    """Return the side files; missing files of examples/deepspeed/ are filled in as in the repository."""
    return {name: shipped(name) if content is None else content for name, content in files.items()}


def shipped(name: str) -> Mapping[str, Any] | None:
    """Return the content of `examples/deepspeed/ds_z3_config.json` and similar files; None for other names."""
    match = _SHIPPED.search(name)
    if match is None:
        return None
    stage, kind = int(match[1]), match[2]
    zero: dict[str, Any] = {"stage": stage, **_COMMON, **(_STAGE3 if stage == 3 else _BUCKETS)}
    if kind is not None:
        zero["offload_optimizer"] = _ON_HOST
    if kind == "_offload" and stage == 3:
        zero["offload_param"] = _ON_HOST
    return {"zero_optimization": zero | (_FP8 if kind == "_fp8" else {})}


def inline_zero(stage: int) -> dict[str, Any]:
    """Return a DeepSpeed config to write into the file itself; sizes and precision follow the other keys."""
    followed = (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
    )
    zero: dict[str, Any] = {"stage": stage, **_COMMON, **(_STAGE3 if stage == 3 else _BUCKETS)}
    return {
        **dict.fromkeys(followed, "auto"),
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": {key: int(value) if isinstance(value, float) else value for key, value in zero.items()},
    }


def under_torchrun(target: Target, values: Mapping[str, Any]) -> bool:
    """Return whether the command starts torchrun: if told to, for several cards, or for DeepSpeed, which needs it."""
    needed = target.launcher == "cli" and (target.gpus > 1 or bool(values.get("deepspeed")))
    return (needed or target.launcher == "torchrun") and not values.get("use_kt")


def added_variables(target: Target, values: Mapping[str, Any]) -> dict[str, str]:
    """Return what the command sets: only before torchrun, under the older name, overriding the user's value."""
    if not under_torchrun(target, values) or target.stack.older_than(PACKAGE, _SETS_ALLOCATOR):
        return {}
    return {CUDA_VARIABLE: EXPANDABLE}
