"""Resolves dtypes: `bf16: auto`, the dtype of loaded weights, and which weights stay in fp32."""

from __future__ import annotations

from vramwise.trainers.axolotl.resolve.kernels import keeps_embeddings_fp32
from vramwise.trainers.axolotl.resolve.loading import resolve_loading
from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.fields import Fields
from vramwise.types import Target


def resolve_dtypes(fields: Fields, target: Target) -> None:
    """Fill precision, weights_dtype, autocast and fp32_embeddings. Needs the method and the attention backend."""
    config = fields.config
    half = _half_precision(fields, target)
    if config.get("fp8"):
        fields.put("precision", "fp8", fields.written("fp8"))
    _weights(fields, half)
    # bfloat16: true still reaches the trainer as bf16, with autocast; only float16 runs without autocast.
    pure = not config.get("fp8") and fields.values["precision"] == "fp16" and half == "fp32"
    amp = fields.values["precision"] != "fp32" and not pure
    why = "mixed precision: autocast around the model" if amp else "no autocast"
    fields.derive("autocast", amp, why)
    _embeddings(fields, schema_in(target.stack))
    fields.take("fp8_scaling", "tensorwise", key="fp8_config.recipe")
    fields.derive("refuses_fp8_below", (9, 0), "Axolotl takes fp8 from Hopper on")
    resolve_loading(fields, target.stack)


def _half_precision(fields: Fields, target: Target) -> str:
    """Return the autocast dtype (bf16, fp16 or fp32), and fill `precision`."""
    config = fields.config
    fields.keys["precision"] = "bf16"
    # An explicit `bf16: null` is off, unlike the default `auto`.
    bf16 = config.get("bf16", "auto" if "bf16" not in config else False)
    fp16 = config.get("fp16")
    by_card = bf16 == "auto" and not fp16
    why = "bf16 auto" if by_card else "the precision is written"
    fields.derive("precision_by_card", by_card, why, key="bf16")
    if by_card:
        return _auto(fields, target)
    if bf16 and bf16 != "auto":
        return str(fields.put("precision", "bf16", fields.written("bf16")))
    if fp16:
        why = "fp16 is set, so bf16 auto gives way" if bf16 == "auto" else "fp16"
        return str(fields.derive("precision", "fp16", why, key="fp16"))
    for key, name in (("bfloat16", "bf16"), ("float16", "fp16")):
        if config.get(key):
            fields.derive("precision", name, f"{key}: weights in {name}", key=key)
            return "fp32"
    return str(fields.derive("precision", "fp32", "neither bf16 nor fp16", key="bf16"))


def _auto(fields: Fields, target: Target) -> str:
    gpu = target.gpu
    if gpu is None or not gpu.known:
        return str(fields.assume("precision", "bf16", "bf16 auto, no card named: one with bf16 assumed"))
    card = gpu.name if gpu.capability is None else f"{gpu.name} (sm_{gpu.capability[0]}{gpu.capability[1]})"
    if gpu.bf16:
        return str(fields.derive("precision", "bf16", f"bf16 auto: {card} has bf16", key="bf16"))
    if fields.config.get("fp16") is False or fields.config.get("float16"):
        written = "bf16" if "bf16" in fields.config else "fp16"
        name, key = ("fp16", "float16") if fields.config.get("float16") else ("fp32", written)
        fields.derive("precision", name, f"bf16 auto: {card} has no bf16, and fp16 is not wanted", key=key)
        return "fp32"
    return str(fields.derive("precision", "fp16", f"bf16 auto: {card} has no bf16", key="bf16"))


def _weights(fields: Fields, half: str) -> None:
    config = fields.config
    key = None
    if half == "bf16" or config.get("bfloat16"):
        dtype, why, key = "bf16", "loaded in bf16", "bf16" if half == "bf16" else "bfloat16"
    elif config.get("load_in_8bit") or half == "fp16" or config.get("float16"):
        dtype, why = "fp16", "loaded in fp16"
    else:
        dtype, why = "fp32", "neither bf16 nor fp16: loaded in fp32"
    if _lora_4bit_upcast(fields):
        dtype, why = "fp32", "adapter lora + load_in_4bit: nothing is quantised and the base is upcast to fp32"
        key = "load_in_4bit"
    fields.derive("weights_dtype", dtype, why, key=key)


def _lora_4bit_upcast(fields: Fields) -> bool:
    """Return whether the unquantised base is cast to fp32.

    Axolotl prepares it as if it were quantised, which casts it; some paths skip that.
    """
    config = fields.config
    if config.get("adapter") != "lora" or config.get("load_in_4bit") is not True:
        return False
    fsdp = str(fields.values["sharding"]).startswith("fsdp")
    skipped = (
        "bnb-4bit" in str(config.get("base_model", "")).lower(),
        config.get("gptq"),
        config.get("quantize_moe_experts"),
        config.get("peft.loftq_config.loftq_bits"),
        fields.values["sharding"] == "zero3",
        fsdp and config.get("fsdp_config.cpu_ram_efficient_loading"),
    )
    return not any(skipped)


def _stays_wide(fields: Fields) -> bool:
    skips = bool(fields.config.get("load_in_4bit")) and fields.config.get("embeddings_skip_upcast") is True
    return fields.values["loss_kernel"] != "cut" and not skips


def _embeddings(fields: Fields, schema: Schema) -> None:
    values = fields.values
    if values["weights_dtype"] == "fp32":
        fields.derive("fp32_embeddings", True, "all weights are fp32")
        fields.derive("host_weights_wide", False, "all weights are of one type")
        return
    _host_weights(fields, schema)
    fsdp = str(values["sharding"]).startswith("fsdp")
    if fsdp and values["adapter"] == "qlora" and schema.since("0.20.0") and _stays_wide(fields):
        fields.derive("fp32_embeddings", True, "QLoRA under FSDP: nothing casts norms, embeddings and lm_head back")
        return
    attention = values["attn_implementation"]
    back = (
        (values["adapter"] is not None, "an adapter is trained"),
        (fsdp, "FSDP"),
        (str(values["sharding"]).startswith("zero"), "DeepSpeed casts the whole model"),
        (
            not keeps_embeddings_fp32(values["attn_implementation"], schema),
            f"attention {values['attn_implementation']}",
        ),
        (values["loss_kernel"] == "cut", "cut cross entropy"),
    )
    for applies, why in back:
        if applies:
            fields.derive("fp32_embeddings", False, f"cast back to {values['weights_dtype']}: {why}")
            return
    why = f"full fine-tune under {attention}: norms, embeddings and lm_head stay fp32"
    fields.derive("fp32_embeddings", True, why)


def _host_weights(fields: Fields, schema: Schema) -> None:
    """Fill host_weights_wide.

    Under ZeRO 3 the cast of embeddings only reaches placeholders, and DeepSpeed's buffer on the host takes the dtype of
    the first of them.
    """
    values = fields.values
    wide = (
        values["sharding"] == "zero3"
        and bool(values["offload_params"])
        and values["adapter"] is None
        and values["loss_kernel"] != "cut"
        and keeps_embeddings_fp32(values["attn_implementation"], schema)
    )
    why = (
        "Axolotl's cast of the embeddings gives offloaded weights their type" if wide else "nothing is cast that stays"
    )
    fields.derive("host_weights_wide", wide, why)
