"""Resolves how the run is distributed over GPUs: DDP, FSDP or ZeRO, offloading, tensor and context parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.base import SideFiles
from vramwise.trainers.deepspeed import read_deepspeed, resolve_offload, resolve_zero
from vramwise.trainers.fields import Fields
from vramwise.types import Origin, Target


def resolve_sharding(fields: Fields, target: Target, files: SideFiles) -> None:
    """Fill gpus, data_parallel, sharding, zero, shard_ranks, reshard_after_forward, sync_each_batch, offload_*…

    `files`: the readable files that the config and the launcher name.
    """
    fields.put("gpus", target.gpus, Origin(kind="option", why=f"target: {target.gpus} GPU(s)"))
    tensor = fields.at_least_one("tensor_parallel_size", 1)
    context = _context_parallel(fields, schema_in(target.stack))
    ranks = max(1, target.gpus // (tensor * context))
    fields.derive("data_parallel", ranks, f"gpus {target.gpus} / tensor {tensor} / context {context}")
    config = fields.config
    fields.derive("shard_ranks", ranks, "all data-parallel ranks")
    fields.derive("reshard_after_forward", True, "the default")
    fields.derive("gathers_checkpoints", False, "the default")
    fields.derive("zero", None, "no ZeRO")
    synced = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
    if config.get(synced) is True:
        fields.put("sync_each_batch", True, fields.written("accelerator_config"))
    else:
        fields.derive("sync_each_batch", False, "the default: gradients are exchanged at the last micro-step")
    # up to 0.11 utils/trainer.py looks at `fsdp` alone
    if config.get("fsdp") or (config.get("fsdp_config") and schema_in(target.stack).since("0.12.0")):
        _fsdp(fields, ranks, schema_in(target.stack))
    elif config.get("deepspeed"):
        written = config.get("deepspeed")
        _zero(fields, target, files.get(written) if isinstance(written, str) else None)
    elif not (target.accelerate and _launched(fields, target, files)):
        kind = "ddp" if target.gpus > 1 else "none"
        fields.derive("sharding", kind, f"{target.gpus} GPU(s), neither fsdp_config nor deepspeed")
        resolve_offload(fields, params=False, optimizer=False, why="nothing is offloaded", key=None)


_BEHIND = "the launcher's settings, which Axolotl does not know of: loading and saving were not measured"


def _launched(fields: Fields, target: Target, files: SideFiles) -> bool:
    """Fill sharding from the options of `accelerate launch`; return False if they shard nothing.

    Axolotl sets accelerate's variables for what its own file has and leaves the others, so those of the launcher apply
    (`prepare_optim_env` in 0.21): accelerate wraps the model, which Axolotl has loaded as for DDP.
    """
    from vramwise.trainers.arguments.resolve.accelerate import launched  # few runs have a launch line
    from vramwise.trainers.arguments.resolve.sharding import as_wrapped, resolve_fsdp

    told = launched(target.accelerate, files)
    if told.missing:
        fields.assume("sharding", "ddp" if target.gpus > 1 else "none", f"{told.why}: counted without sharding")
        resolve_offload(fields, params=False, optimizer=False, why="nothing is offloaded", key=None)
        return True
    if told.deepspeed:
        content = files.get(told.deepspeed) if isinstance(told.deepspeed, str) else None
        resolve_zero(fields, read_deepspeed(told.deepspeed, content), target.stack.parts("deepspeed"), "")
    elif told.fsdp is not None:
        resolve_fsdp(fields, told.fsdp, "", 1)
        as_wrapped(fields, target.stack.parts("accelerate"))
    else:
        return False
    fields.assume("sharding", fields.values["sharding"], f"{told.why}: {_BEHIND}")
    return True


def spread_by_file(fields: Fields) -> bool:
    """Return whether Axolotl's own file shards the run, not the launcher."""
    return any(fields.config.get(key) for key in ("fsdp_config", "fsdp", "deepspeed"))


def _context_parallel(fields: Fields, schema: Schema) -> int:
    key, block = "context_parallel_size", "context_parallel.size"
    if schema.key_type(block) and isinstance(fields.config.get(block), int):
        return fields.at_least_one("context_parallel_size", 1, key=block)
    if fields.config.get(key) is None and fields.config.get("sequence_parallel_degree") is not None:
        key = "sequence_parallel_degree"
    return fields.at_least_one("context_parallel_size", 1, key=key)


def _fsdp(fields: Fields, ranks: int, schema: Schema) -> None:
    key = "fsdp_config" if fields.config.get("fsdp_config") else "fsdp"
    written = fields.config.get("fsdp_version")
    unset = schema.defaults().get("fsdp_version", 1)
    why = f"fsdp_version {written}" if written else f"fsdp_version unset means {unset} in Axolotl {schema.short}"
    version = 2 if str(written or unset) == "2" else 1
    if version == 2 and not schema.since("0.9.0"):  # setup_fsdp_envs (utils/trainer.py) does not ask for it
        version, why = 1, f"Axolotl {schema.short} has FSDP1 only"
    if version == 1 and schema.since("0.20.0"):
        version, why = 2, f"Axolotl {schema.short} has FSDP2 only; it refuses fsdp_version {written}"
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
    resolve_offload(fields, params=offload, optimizer=offload, why=why, key="fsdp_config.offload_params")


def _shard_ranks(fields: Fields, ranks: int) -> None:
    """Fill shard_ranks: groups of ranks that each share a whole model. One size is given, the other follows."""
    shard, replicate = [_count(fields, f"dp_{kind}_size") for kind in ("shard", "replicate")]
    if shard > 1:
        fields.put("shard_ranks", min(shard, ranks), fields.written("dp_shard_size"))
    elif replicate > 1:
        why = f"{ranks} ranks in {replicate} groups"
        fields.derive("shard_ranks", max(1, ranks // replicate), why, key="dp_replicate_size")


def _count(fields: Fields, key: str) -> int:
    value = fields.config.get(key)
    return value if isinstance(value, int) else 1


# The DeepSpeed of Axolotl's extra of that name from a release on (setup.py); from 0.17 on the newest that it allows.
_DEEPSPEEDS = {
    "0.17.0": (0, 18, 9),
    "0.13.1": (0, 18, 2),
    "0.12.0": (0, 17, 2),
    "0.10.0": (0, 17, 0),
    "0.8.0": (0, 15, 4),
    "0.6.0": (0, 16, 1),
    "0.5.0": (0, 15, 4),
}


def _zero(fields: Fields, target: Target, content: Mapping[str, Any] | None) -> None:
    zero = read_deepspeed(fields.config.get("deepspeed"), content)
    release = target.stack.parts("deepspeed")
    schema = schema_in(target.stack)
    if not release and not schema.since("0.20.0"):
        release = next(one for since, one in _DEEPSPEEDS.items() if schema.since(since))
    resolve_zero(fields, zero, release, "deepspeed")
