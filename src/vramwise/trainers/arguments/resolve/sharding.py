"""Resolves how a run is distributed over GPUs: DDP, FSDP or ZeRO, from the arguments or accelerate's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.arguments.resolve.accelerate import Accelerate, launched
from vramwise.trainers.arguments.values import Arguments
from vramwise.trainers.base import SideFiles
from vramwise.trainers.deepspeed import Filled, read_deepspeed, resolve_offload, resolve_zero
from vramwise.types import Origin, Target

# Since this release, `no_sync` holds FSDP 2's gradients back too (accelerator.py of 1.10.1 and 1.11.0).
_KEEPS_GRADIENTS = (1, 11)
NO_ACCELERATE = Accelerate()
_FILES = ("deepspeed", "fsdp_config", "accelerator_config")
_FILE_ENDINGS = (".json", ".yaml", ".yml")


def side_files(values: Mapping[str, Any], *more: str) -> tuple[str, ...]:
    """Return the names of other files that affect memory, under TrainingArguments' keys and those in `more`."""
    named = [values.get(key) for key in (*_FILES, *more)]
    return tuple(name for name in named if isinstance(name, str) and name.endswith(_FILE_ENDINGS))


def resolve_sharding(
    args: Arguments,
    target: Target,
    files: SideFiles,
    accelerate: Accelerate = NO_ACCELERATE,
    *,
    newest_accelerate: tuple[int, ...] = (),
) -> None:
    """Fill gpus, data_parallel, sharding, zero, shard_ranks, offload_* and related settings.

    `newest_accelerate`: the newest release that the trainer supports, if that is not the newest of all.
    """
    if accelerate is NO_ACCELERATE and target.accelerate:
        accelerate = launched(target.accelerate, files)
    _ranks(args, target, accelerate)
    for name, value in (("reshard_after_forward", True), ("gathers_checkpoints", False), ("zero", None)):
        args.derive(name, value, "no sharding")
    args.derive("shards_by_tensor", False, "no sharding")
    synced = args.fields.config.get("accelerator_config.gradient_accumulation_kwargs.sync_each_batch") is True
    why = "sync_each_batch is on" if synced else "the default: gradients are synchronised at the last micro-step"
    args.derive("sync_each_batch", synced, why, key="accelerator_config")
    args.derive("fsdp_adapters_apart", False, "accelerate wraps blocks, and the rest around them")
    args.derive("host_weights_wide", False, "no weight is cast before DeepSpeed takes them")
    older = "train_sampling_strategy" not in args.words  # transformers 4: FSDP 1 by default
    unsaid = 1 if older else 2
    if args.value("deepspeed"):
        _zero(args, target, _content(args.value("deepspeed"), files), args.value("deepspeed"), "deepspeed")
    elif accelerate.deepspeed:
        _zero(args, target, _content(accelerate.deepspeed, files), accelerate.deepspeed, accelerate.key)
    elif args.value("fsdp"):
        block = _fsdp_block(args, files)
        if (0,) < target.stack.parts("transformers") < (4, 41):  # later ones overwrite the launcher's variable
            block = {"cpu_ram_efficient_loading": target.accelerate.get("fsdp_cpu_ram_efficient_loading"), **block}
        resolve_fsdp(args, block, "fsdp_config" if args.written("fsdp_config") else "fsdp", unsaid)
    elif accelerate.fsdp is not None:
        resolve_fsdp(args, accelerate.fsdp, accelerate.key, unsaid)
    else:
        _plain(args, target, accelerate)
    as_wrapped(args, target.stack.parts("accelerate") or newest_accelerate)


def as_wrapped(args: Filled, release: tuple[int, ...]) -> None:
    """Fill how this release of accelerate wraps a model for FSDP 2 (`fsdp2_prepare_model`). Needs the sharding.

    Since 1.14, embeddings and head are separate units, and trained weights are cast to fp32 before they are sharded.
    1.13 casts copies that are not kept. Before that, all shards are cast, including frozen ones.
    """
    newer = not release or release >= (1, 14)
    args.derive("fsdp_one_root", not newer, f"accelerate {'since' if newer else 'before'} 1.14")
    widens = "trained" if newer else "nothing" if release >= (1, 13) else "all"
    args.derive("fsdp_widens", widens, f"accelerate {'.'.join(map(str, release)) or 'since 1.14'}")
    if args.values["sharding"] == "fsdp2" and () < release < _KEEPS_GRADIENTS:
        args.derive("sync_each_batch", True, "accelerate before 1.11 reduces FSDP 2's gradients at every micro-step")


def _ranks(args: Arguments, target: Target, accelerate: Accelerate) -> None:
    args.fields.put("gpus", target.gpus, Origin(kind="option", why=f"target: {target.gpus} GPU(s)"))
    tensor, context = accelerate.tensor_parallel, accelerate.context_parallel
    for name, size in (("tensor_parallel_size", tensor), ("context_parallel_size", context)):
        args.derive(name, size, accelerate.why or "none", key=accelerate.key or None)
    ranks = max(1, target.gpus // (tensor * context))
    args.derive("data_parallel", ranks, f"gpus {target.gpus} / tensor {tensor} / context {context}")
    args.derive("shard_ranks", ranks, "all data-parallel ranks")


def _plain(args: Arguments, target: Target, accelerate: Accelerate) -> None:
    kind = "ddp" if target.gpus > 1 else "none"
    why = f"{target.gpus} GPU(s), neither fsdp nor deepspeed"
    if accelerate.missing:
        args.fields.assume("sharding", kind, f"{accelerate.why}: counted without sharding")
    else:
        args.derive("sharding", kind, why)
    resolve_offload(args, params=False, optimizer=False, why="nothing is offloaded", key=None)


def _content(value: Any, files: SideFiles) -> Mapping[str, Any] | None:
    return files.get(value) if isinstance(value, str) else None


def _fsdp_block(args: Arguments, files: SideFiles) -> Mapping[str, Any]:
    """Return fsdp_config, from its file if it names one, combined with an old `fsdp: full_shard offload`."""
    written = args.value("fsdp_config")
    found = _content(written, files) if isinstance(written, str) else written
    found = found if isinstance(found, Mapping) else {}
    block = {str(key).removeprefix("fsdp_"): value for key, value in found.items()}
    words = args.value("fsdp")
    words = words.split() if isinstance(words, str) else words if isinstance(words, list) else []
    if "offload" in words:
        block.setdefault("cpu_offload", True)
    if "shard_grad_op" in words:
        block.setdefault("reshard_after_forward", False)
    return block


def resolve_fsdp(args: Filled, block: Mapping[str, Any], key: str, unsaid: int) -> None:
    """Fill sharding and related settings from FSDP's settings; `unsaid`: the version if they name none."""
    number = 1 if str(block.get("version", unsaid)) == "1" else 2
    args.derive("sharding", f"fsdp{number}", f"FSDP {number}", key=key)
    if str(block.get("reshard_after_forward")).lower() in ("false", "shard_grad_op"):
        args.derive("reshard_after_forward", False, "reshard_after_forward is off", key=key)
    whole = block.get("state_dict_type", "FULL_STATE_DICT") == "FULL_STATE_DICT"
    args.derive("gathers_checkpoints", whole, f"state_dict_type is {'' if whole else 'not '}FULL_STATE_DICT", key=key)
    offload = _true(block.get("offload_params")) or _true(block.get("cpu_offload"))
    resolve_offload(args, params=offload, optimizer=offload, why="FSDP's offload" if offload else "no offload", key=key)
    if _true(block.get("cpu_ram_efficient_loading")):
        args.derive("shards_by_tensor", True, "cpu_ram_efficient_loading: rank 0 sends every tensor", key=key)
    if _true(block.get("activation_checkpointing")):
        args.derive("recompute", True, "FSDP recomputes every block", key=key)
        args.derive("checkpointing_reentrant", False, "accelerate's wrapper never is", key=key)


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


def _zero(args: Arguments, target: Target, content: Mapping[str, Any] | None, value: Any, key: str) -> None:
    resolve_zero(args, read_deepspeed(value, content), target.stack.parts("deepspeed"), key)
