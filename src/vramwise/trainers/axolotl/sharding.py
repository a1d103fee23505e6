"""How the run is spread over GPUs: DDP, FSDP or ZeRO, offload, tensor and context parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.deepspeed import read_deepspeed
from vramwise.trainers.fields import Fields
from vramwise.types import Origin, Target


def resolve_sharding(fields: Fields, target: Target, deepspeed: Mapping[str, Any] | None) -> None:
    """Fills gpus, data_parallel, sharding, shard_ranks, reshard_after_forward, sync_each_batch, offload_*…"""
    fields.put("gpus", target.gpus, Origin(kind="option", why=f"target: {target.gpus} GPU(s)"))
    tensor = fields.at_least_one("tensor_parallel_size", 1)
    context = _context_parallel(fields)
    ranks = max(1, target.gpus // (tensor * context))
    fields.derive("data_parallel", ranks, f"gpus {target.gpus} / tensor {tensor} / context {context}")
    config = fields.config
    fields.derive("shard_ranks", ranks, "all data-parallel ranks")
    fields.derive("reshard_after_forward", True, "the default")
    fields.derive("gathers_checkpoints", False, "the default")
    synced = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
    if config.get(synced) is True:
        fields.put("sync_each_batch", True, fields.written("accelerator_config"))
    else:
        fields.derive("sync_each_batch", False, "the default: gradients are exchanged at the last micro-step")
    if config.get("fsdp_config") or config.get("fsdp"):
        _fsdp(fields, ranks)
    elif config.get("deepspeed"):
        _zero(fields, deepspeed)
    else:
        kind = "ddp" if target.gpus > 1 else "none"
        fields.derive("sharding", kind, f"{target.gpus} GPU(s), neither fsdp_config nor deepspeed")
        _offload(fields, params=False, optimizer=False, why="nothing is offloaded", key=None)


def _context_parallel(fields: Fields) -> int:
    key = "context_parallel_size"
    if fields.config.get(key) is None and fields.config.get("sequence_parallel_degree") is not None:
        key = "sequence_parallel_degree"
    return fields.at_least_one("context_parallel_size", 1, key=key)


def _fsdp(fields: Fields, ranks: int) -> None:
    key = "fsdp_config" if fields.config.get("fsdp_config") else "fsdp"
    version = 2 if str(fields.config.get("fsdp_version")) == "2" else 1
    why = f"fsdp_version {version}" if fields.config.get("fsdp_version") else "fsdp_version unset means 1"
    fields.derive("sharding", f"fsdp{version}", why, key=key)
    if version == 2:
        _shard_ranks(fields, ranks)
        if fields.config.get("fsdp_config.reshard_after_forward") is False:
            fields.put("reshard_after_forward", False, fields.written("fsdp_config.reshard_after_forward"))
    state = "fsdp_config.state_dict_type"
    whole = fields.config.get(state) == "FULL_STATE_DICT"
    fields.derive("gathers_checkpoints", whole, f"{state} is {'' if whole else 'not '}FULL_STATE_DICT", key=state)
    offload = fields.config.get("fsdp_config.offload_params") is True
    why = "fsdp_config.offload_params" if offload else "fsdp_config.offload_params is not on"
    _offload(fields, params=offload, optimizer=offload, why=why, key="fsdp_config.offload_params")


def _shard_ranks(fields: Fields, ranks: int) -> None:
    """Groups of ranks that each hold the whole model, spread among them: one size given, the other follows."""
    shard, replicate = [_count(fields, f"dp_{kind}_size") for kind in ("shard", "replicate")]
    if shard > 1:
        fields.put("shard_ranks", min(shard, ranks), fields.written("dp_shard_size"))
    elif replicate > 1:
        why = f"{ranks} ranks in {replicate} groups"
        fields.derive("shard_ranks", max(1, ranks // replicate), why, key="dp_replicate_size")


def _count(fields: Fields, key: str) -> int:
    value = fields.config.get(key)
    return value if isinstance(value, int) else 1


def _zero(fields: Fields, content: Mapping[str, Any] | None) -> None:
    zero = read_deepspeed(fields.config.get("deepspeed"), content)
    if zero.stage is None:
        fields.assume("sharding", "zero2", f"{zero.why}; ZeRO 2 assumed")
    else:
        kind = f"zero{zero.stage}" if zero.stage in (1, 2, 3) else "ddp"
        fields.derive("sharding", kind, zero.why, key="deepspeed")
    _offload(fields, params=zero.offload_params, optimizer=zero.offload_optimizer, why=zero.why, key="deepspeed")


def _offload(fields: Fields, *, params: bool, optimizer: bool, why: str, key: str | None) -> None:
    fields.derive("offload_params", params, why, key=key)
    fields.derive("offload_optimizer", optimizer, why, key=key)
