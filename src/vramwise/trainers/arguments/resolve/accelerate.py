"""accelerate's own config file: how `accelerate launch` spreads a run, in the words of TrainingArguments.

Read in accelerate 1.15: commands/launch.py and utils/dataclasses.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerate:
    """What an accelerate file settles; nothing of it where there is none. `key` names it in the trainer's file."""

    key: str = ""
    why: str = ""
    mixed_precision: str | None = None
    fsdp: Mapping[str, Any] | None = None  # as fsdp_config has it, without the prefix
    deepspeed: Mapping[str, Any] | str | None = None  # as DeepSpeed's own file has it, or the name of one
    tensor_parallel: int = 1
    context_parallel: int = 1
    missing: bool = field(default=False)  # it is named, and not here to read


def read_accelerate(content: Mapping[str, Any] | None, *, key: str, name: str) -> Accelerate:
    """The file `name`, which the trainer's `key` names; None where it could not be read."""
    if content is None:
        return Accelerate(key=key, why=f"{name} is not available", missing=True)
    kind = str(content.get("distributed_type", "NO")).upper()
    block = _block(content, "parallelism_config")
    precision = content.get("mixed_precision")
    return Accelerate(
        key=key,
        why=f"accelerate's settings in {name}",
        mixed_precision=precision if isinstance(precision, str) else None,
        fsdp=_unprefixed(_block(content, "fsdp_config"), "fsdp_") if kind == "FSDP" else None,
        deepspeed=_deepspeed(_block(content, "deepspeed_config")) if kind == "DEEPSPEED" else None,
        tensor_parallel=_size(block, "tp_size"),
        context_parallel=_size(block, "cp_size"),
    )


def _block(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _unprefixed(block: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {str(key).removeprefix(prefix): value for key, value in block.items()}


def _size(block: Mapping[str, Any], name: str) -> int:
    value = block.get(f"parallelism_config_{name}", block.get(name, 1))
    return value if type(value) is int and value > 0 else 1


def _deepspeed(block: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """DeepSpeed's settings; accelerate's few words for them where no file of DeepSpeed's own is named."""
    named = block.get("deepspeed_config_file")
    if isinstance(named, str) and named not in ("", "none"):
        return named
    zero: dict[str, Any] = {"stage": block.get("zero_stage", 2)}
    for kind in ("param", "optimizer"):
        device = block.get(f"offload_{kind}_device")
        if isinstance(device, str) and device != "none":
            zero[f"offload_{kind}"] = {"device": device}
    return {"zero_optimization": zero}
