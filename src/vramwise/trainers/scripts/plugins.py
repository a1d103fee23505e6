"""Reads sharding through accelerate, as the equivalent keys of TrainingArguments.

The source is a plugin of the script's Accelerator, or the file of `accelerate launch`. The Trainer creates its own
Accelerator, which shares the state of the script's. With one process neither has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import Called, Missing, Result, Value, plain
from vramwise.trainers.arguments.resolve.accelerate import read_accelerate

_STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard"}
# Arguments of FullyShardedDataParallelPlugin → keys of fsdp_config.
_FSDP = {
    "fsdp_version": "version",
    "reshard_after_forward": "reshard_after_forward",
    "activation_checkpointing": "activation_checkpointing",
    "cpu_offload": "offload_params",
    "cpu_ram_efficient_loading": "cpu_ram_efficient_loading",
}
_OFFLOADS = ("offload_optimizer_device", "offload_param_device")


def from_accelerator(evaluator: Evaluator) -> tuple[dict[str, Any], list[tuple[str, Missing]]]:
    """Return the keys for `Accelerator(fsdp_plugin=…, deepspeed_plugin=…)`, and which of them are unknown."""
    for call, site in evaluator.found.calls:
        if evaluator.called(call, site).rpartition(".")[2] != "Accelerator" or evaluator.holds(site) is False:
            continue
        _, named, _ = evaluator.arguments(Called(name="Accelerator", node=call, site=site))
        for argument, key, read in (("fsdp_plugin", "fsdp", _fsdp), ("deepspeed_plugin", "deepspeed", _deepspeed)):
            plugin = named.get(argument)
            if isinstance(plugin, Called):
                _, given, _ = evaluator.arguments(plugin)
                return read({**given, **plugin.assigned}), []
            if isinstance(plugin, Missing):
                return {}, [(key, plugin)]
    return {}, []


def from_file(content: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """Return the keys for accelerate's own file; empty if it cannot be read."""
    read = read_accelerate(content, key="accelerate_config", name=name)
    if read.deepspeed:
        return {"deepspeed": read.deepspeed}
    if read.fsdp is None:
        return {}
    return {"fsdp": _STRATEGIES.get(str(read.fsdp.get("sharding_strategy")), "full_shard"), "fsdp_config": read.fsdp}


def _fsdp(given: Mapping[str, Result]) -> dict[str, Any]:
    strategy = str(_value(given.get("sharding_strategy"), "full_shard")).rpartition(".")[2].lower()
    block = {word: _value(given[name], None) for name, word in _FSDP.items() if name in given}
    block = {word: value for word, value in block.items() if value is not None}
    words = [_STRATEGIES.get(strategy, strategy), *(["offload"] if block.pop("offload_params", False) else [])]
    return {"fsdp": " ".join(words), "fsdp_config": {"version": 1, **block}}  # 1: the plugin's own default


def _deepspeed(given: Mapping[str, Result]) -> dict[str, Any]:
    written = _value(given.get("hf_ds_config"), None)
    if written is not None:
        return {"deepspeed": written}
    zero: dict[str, Any] = {"stage": _value(given.get("zero_stage"), 2)}
    for name in _OFFLOADS:
        device = _value(given.get(name), "none")
        if device != "none":
            zero[name.removesuffix("_device")] = {"device": device}
    return {"deepspeed": {"zero_optimization": zero}}


def _value(result: Result | None, default: Any) -> Any:
    """Return a plain value; a class such as CPUOffload(offload_params=True) counts as true."""
    if isinstance(result, Called):
        return result.name if not result.last[:1].isupper() else True
    found = None if result is None else plain(result)
    return found.value if isinstance(found, Value) and found.value is not None else default
