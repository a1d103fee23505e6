"""Resolves how Axolotl loads: the way of the weights to the card, and which of them it casts to fp32 temporarily.

Follows `loaders/model.py` of each version. Up to 0.19, embeddings and head are cast to fp32 in every run, and back if
an adapter, the attention backend or the loss needs half precision; since 0.20, only if they stay fp32.
"""

from __future__ import annotations

from typing import Any

from vramwise.trainers.axolotl.resolve.sharding import spread_by_file
from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.fields import Fields
from vramwise.trainers.installed import resolve_quantised_way
from vramwise.types import Stack

_SKIP = "embeddings_skip_upcast"


def resolve_loading(fields: Fields, stack: Stack) -> None:
    """Fill loads_through, shards_by_tensor, upcasts_at_load, quantised_base_prepared and resets_load_peaks.

    Needs dtypes and sharding.
    """
    schema = schema_in(stack)
    by_tensor, key = _by_tensor(fields), "fsdp_config.cpu_ram_efficient_loading"
    fields.derive("shards_by_tensor", by_tensor, f"{key} is {'on' if by_tensor else 'not on'}", key=key)
    _way(fields, stack)
    _upcasts(fields, schema)
    _preparation(fields, schema)
    fields.derive("packed_as_bytes", False, "Axolotl stores 4-bit weights in the type of the others")
    fields.derive("upcasts_stay", False, "the cast is undone, except as fp32_embeddings says")
    fields.derive("trains_in_fp32", False, "weights are trained in the type they are loaded in")
    resets = schema.since("0.13.1")  # gpu_memory_usage_all (utils/bench.py)
    fields.derive("resets_load_peaks", resets, "since 0.13 Axolotl resets torch's peak figures after loading")


def _way(fields: Fields, stack: Stack) -> None:
    name, config = "loads_through", fields.config
    if config.get("reinit_weights"):
        fields.derive(name, "made", "random weights, made from the model's config", key="reinit_weights")
    elif str(fields.values["sharding"]).startswith("fsdp") and fields.values["adapter"] == "qlora":
        _qlora_under_fsdp(fields, stack)
    elif _spread(fields):
        fields.derive(name, "host", "no device map: the weights are spread from host memory")
    elif _on_host(config.get("device_map")) and fields.values["quantization"] is None:
        fields.derive(name, "host", "the device map keeps the weights in host memory", key="device_map")
    else:
        why = "read straight onto the card (one process that accelerate starts takes less: it goes by host memory)"
        fields.derive(name, "device", why)


def _qlora_under_fsdp(fields: Fields, stack: Stack) -> None:
    """Fill loads_through: with a device map of one card, every rank quantises the whole model.

    The exception is the loader that stages it on the host. Since 0.20 Axolotl turns it on by itself for QLoRA with
    cpu_ram_efficient_loading (`utils/schemas/validation.py`).
    """
    config, key = fields.config, "qlora_sharded_model_loading"
    wanted = config.get(key, schema_in(stack).since("0.20.0") and bool(config.get("load_in_4bit")))
    if (wanted and _by_tensor(fields)) or config.get("nf4_backend") == "torchao":
        fields.derive("loads_through", "host", "quantised weight by weight, and kept in host memory", key=key)
    else:
        resolve_quantised_way(fields, stack)


def _by_tensor(fields: Fields) -> bool:
    return fields.config.get("fsdp_config.cpu_ram_efficient_loading") is True


def _spread(fields: Fields) -> bool:
    kind = str(fields.values["sharding"])
    return (kind.startswith("fsdp") or kind == "zero3") and spread_by_file(fields)


def _on_host(device_map: Any) -> bool:
    places = [*device_map.values()] if isinstance(device_map, dict) else [device_map]
    return bool(places) and all(place == "cpu" for place in places)


def _upcasts(fields: Fields, schema: Schema) -> None:
    values, config = fields.values, fields.config
    name = "upcasts_at_load"
    fsdp = str(values["sharding"]).startswith("fsdp")
    skips = bool(config.get("load_in_4bit")) and config.get(_SKIP) is True
    if not schema.since("0.20.0"):
        embeddings, small = not fsdp and not skips, not fsdp
        why = "cast to fp32 after loading, as in every run" if embeddings else "under FSDP nothing is cast"
    else:
        embeddings = not _cast_back(fields) and not skips
        small = embeddings or not fsdp
        why = "embeddings that would be cast back are left alone since Axolotl 0.20"
    if values["weights_dtype"] == "fp32" or values["sharding"] == "zero3":
        embeddings = small = False
        why = (
            "all weights are fp32" if values["weights_dtype"] == "fp32" else "under ZeRO 3 no rank holds a whole weight"
        )
    kinds = (*(("norm", "router") if small else ()), *(("embedding", "lm_head") if embeddings else ()))
    fields.derive(name, kinds, f"{_SKIP} is in force" if skips else why, key=_SKIP)


def _cast_back(fields: Fields) -> bool:
    """Return whether norms and embeddings are later cast back to the run's dtype."""
    values = fields.values
    fsdp = str(values["sharding"]).startswith("fsdp")
    if fsdp and values["adapter"] == "qlora":
        return bool(values["loss_kernel"] == "cut")
    return not values["fp32_embeddings"]


def _preparation(fields: Fields, schema: Schema) -> None:
    """Fill PEFT's preparation of a quantised base; since 0.20 it skips embeddings that would be cast back."""
    values, config = fields.values, fields.config
    name, written = "quantised_base_prepared", config.get(_SKIP)
    if values["quantization"] in (None, "gptq") or _unprepared(fields):
        fields.derive(name, "no", "PEFT's preparation casts nothing here")
        return
    spares = written if written is not None else schema.since("0.20.0") and _cast_back(fields)
    why = "PEFT casts everything that is not quantised to fp32"
    fields.derive(
        name, "but embeddings" if spares else "all", why + (", embeddings spared" if spares else ""), key=_SKIP
    )


def _unprepared(fields: Fields) -> bool:
    values, config = fields.values, fields.config
    fsdp = str(values["sharding"]).startswith("fsdp")
    reasons = (
        fsdp and (values["adapter"] == "qlora" or config.get("fsdp_config.cpu_ram_efficient_loading")),
        values["sharding"] == "zero3",
        bool(config.get("quantize_moe_experts")) and values["adapter"],
        values["adapter"] == "lora" and config.get("peft.loftq_config.loftq_bits"),
    )
    return any(reasons)
