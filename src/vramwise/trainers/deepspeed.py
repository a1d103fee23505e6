"""What a DeepSpeed config means for memory: the ZeRO stage and what is offloaded.

Knows the file names trainers ship (`deepspeed_configs/zero*.json`) without the files. Does not know buckets or prefetch
sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHIPPED = re.compile(r"(?:^|/)zero([123])(?:_bf16)?(?:_cpuoffload_(all|params))?(?:_torch_compile)?\.json$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeed:
    """ZeRO stage (None: not known), and whether parameters and optimizer states live in host memory."""

    stage: int | None
    offload_params: bool
    offload_optimizer: bool
    why: str


def read_deepspeed(value: Any, content: Mapping[str, Any] | None) -> DeepSpeed:
    """`value` is the config's `deepspeed:` entry; `content` the parsed file it names, where that exists."""
    if isinstance(value, Mapping):
        return _from_mapping(value, "inline deepspeed block")
    if content is not None:
        return _from_mapping(content, f"read from {value}")
    match = _SHIPPED.search(str(value))
    if match is None:
        why = f"{value} is not here to read: stage unknown"
        return DeepSpeed(stage=None, offload_params=False, offload_optimizer=False, why=why)
    return DeepSpeed(
        stage=int(match[1]),
        offload_params=match[2] is not None,
        offload_optimizer=match[2] == "all",
        why=f"{str(value).rsplit('/', 1)[-1]} as trainers ship it",
    )


def _from_mapping(content: Mapping[str, Any], why: str) -> DeepSpeed:
    zero = content.get("zero_optimization")
    zero = zero if isinstance(zero, Mapping) else {}
    stage = zero.get("stage", 0)
    return DeepSpeed(
        stage=stage if type(stage) is int else None,  # true is an int to Python, and no stage
        offload_params=_offloads(zero.get("offload_param")),
        offload_optimizer=_offloads(zero.get("offload_optimizer")) or zero.get("cpu_offload") is True,
        why=why,
    )


def _offloads(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("device") in ("cpu", "nvme")
