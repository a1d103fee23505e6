"""Reads accelerate's own config file: how `accelerate launch` distributes a run, as TrainingArguments express it.

Read in accelerate 1.15: commands/launch.py and utils/dataclasses.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.units import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerate:
    """The settings of an accelerate file; all empty if there is none. `key`: the trainer's key that names the file."""

    key: str = ""
    why: str = ""
    mixed_precision: str | None = None
    fsdp: Mapping[str, Any] | None = None  # like fsdp_config, without the prefix
    deepspeed: Mapping[str, Any] | str | None = None  # like DeepSpeed's own file, or the name of one
    tensor_parallel: int = 1
    context_parallel: int = 1
    missing: bool = field(default=False)  # it is named but not available


def read_accelerate(content: Mapping[str, Any] | None, *, key: str, name: str) -> Accelerate:
    """Read the file `name`, which the trainer's `key` names. `content`: None if it could not be read."""
    if content is None:
        return Accelerate(key=key, why=f"{name} is not available", missing=True)
    kind = str(content.get("distributed_type", "NO")).upper()
    block = _block(content, "parallelism_config")
    precision = content.get("mixed_precision")
    return Accelerate(
        key=key,
        why=f"accelerate's settings in {name}",
        mixed_precision=precision if isinstance(precision, str) else None,
        fsdp=_FSDP_UNSAID | _unprefixed(_block(content, "fsdp_config"), "fsdp_") if kind == "FSDP" else None,
        deepspeed=_deepspeed(_block(content, "deepspeed_config")) if kind == "DEEPSPEED" else None,
        tensor_parallel=_size(block, "tp_size"),
        context_parallel=_size(block, "cp_size"),
    )


def launched(words: Mapping[str, str], files: Mapping[str, Mapping[str, Any] | None]) -> Accelerate:
    """Return the settings of `accelerate launch` from its options (`words`) and the file they name; options win."""
    name = words.get("config_file", "")
    content = files.get(name) if name else {}
    if content is None:
        return read_accelerate(None, key="", name=name)
    content = {**content, **{key: words[key] for key in ("mixed_precision",) if key in words}}
    if words.get("use_fsdp"):
        content |= {"distributed_type": "FSDP", "fsdp_config": _of(words, "fsdp_")}
    elif words.get("use_deepspeed"):
        own = {key: words[key] for key in _DEEPSPEED if key in words}
        content |= {"distributed_type": "DEEPSPEED", "deepspeed_config": own}
    return read_accelerate(content, key="", name=name or "its options")


# `accelerate launch`: FSDP's defaults for options that neither line nor file has, and DeepSpeed's options.
_FSDP_UNSAID = {"version": "1", "cpu_ram_efficient_loading": "true"}
_DEEPSPEED = ("zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file")


def _of(words: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key: value for key, value in words.items() if key.startswith(prefix)}


def _block(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _unprefixed(block: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {str(key).removeprefix(prefix): value for key, value in block.items()}


def _size(block: Mapping[str, Any], name: str) -> int:
    value = block.get(f"parallelism_config_{name}", block.get(name, 1))
    return value if type(value) is int and value > 0 else 1


def _deepspeed(block: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """Return DeepSpeed's settings, or the name of its own file if one is named."""
    named = block.get("deepspeed_config_file")
    if isinstance(named, str) and named not in ("", "none"):
        return named
    stage = block.get("zero_stage", 2)
    zero: dict[str, Any] = {"stage": whole_number(stage) if isinstance(stage, str) else stage}
    for kind in ("param", "optimizer"):
        device = block.get(f"offload_{kind}_device")
        if isinstance(device, str) and device != "none":
            zero[f"offload_{kind}"] = {"device": device}
    return {"zero_optimization": zero}
