"""Resolves dtypes: weights as the checkpoint stores them; trained ones are cast to fp32 unless pure_bf16 is set.

Follows `get_train_args`, model/loader.py (`torch_dtype: auto`), `init_adapter` and `prepare_model_for_training`.
"""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.installed import resolve_quantised_way
from vramwise.trainers.llamafactory.keys import since
from vramwise.types import Target

_AUTO = "weights are loaded in the checkpoint's type, assumed to be bf16"


def resolve_dtypes(args: Arguments, target: Target) -> None:
    """Fill precision, autocast, weights_dtype, trains_in_fp32… Needs the method and sharding."""
    _trained(args, target)
    _precision(args)
    args.derive("precision_by_card", False, "the file decides, not the card", key="bf16")
    args.fields.neutral("fp8_scaling")
    args.derive("refuses_fp8_below", None, "LLaMA-Factory does not check the card", key="fp8")
    if args.value("train_from_scratch") and not args.value("bf16"):
        args.derive("weights_dtype", "fp32", "a model built from its config, in fp32", key="train_from_scratch")
    else:
        args.fields.assume("weights_dtype", "bf16", _AUTO)
    args.derive("fp32_embeddings", False, "embeddings are cast like other trained weights, or not at all")
    norms = bool(args.value("upcast_layernorm"))
    args.derive("upcasts_at_load", ("norm",) if norms else (), "upcast_layernorm", key="upcast_layernorm")
    _loading(args, target)


def _trained(args: Arguments, target: Target) -> None:
    name = "trains_in_fp32"
    engines = ("zero3",) if since(target.stack, 0, 9, 3) else ("zero3", "fsdp1", "fsdp2")
    shards = args.values["sharding"] in engines and args.values["quantization"] is None
    for key in ("pure_bf16", "use_badam"):
        if args.value(key):
            args.derive(name, False, f"{key}: trained weights stay in half precision", key=key)
            return
    if shards:
        args.derive(name, False, "the engine keeps fp32 copies (adapter.py of 0.9.2, 0.9.3)", key="deepspeed")
    else:
        args.derive(name, True, "trained weights are cast to fp32 unless pure_bf16 is set", key="pure_bf16")


def _precision(args: Arguments) -> None:
    """Fill the precision: fp8, then bf16, then fp16; without any of them, the dtype of the weights."""
    if args.value("fp8"):
        args.put("precision", "fp8", "fp8")
    elif args.value("bf16"):
        args.put("precision", "bf16", "bf16")
    elif args.value("fp16"):
        args.put("precision", "fp16", "fp16")
    else:
        _without_autocast(args)
        return
    args.derive("autocast", True, "mixed precision: autocast around the model", key=args.fields.keys["precision"])


def _without_autocast(args: Arguments) -> None:
    wide = args.values["trains_in_fp32"] and args.values["adapter"] is None
    if args.value("pure_bf16"):
        args.put("precision", "pure_bf16", "bf16")
    elif wide:
        args.derive("precision", "fp32", "neither bf16 nor fp16, and all weights are fp32", key="bf16")
    else:
        args.derive("precision", "bf16", "neither bf16 nor fp16: computed in the base's own type", key="bf16")
    args.derive("autocast", False, "no autocast", key="bf16")


def _loading(args: Arguments, target: Target) -> None:
    """Fill loads_through: a device map loads weights directly onto the card, unless the file or ZeRO 3 prevents it.

    When the model is loaded, FSDP requested in the file is not known yet (accelerate learns of it with the trainer), so
    each card takes the whole model before it is sharded. accelerate's own launcher announces FSDP earlier.
    """
    launched = bool(target.accelerate)
    if args.value("train_from_scratch"):
        args.derive(
            "loads_through", "host", "built from its config in host memory, then moved", key="train_from_scratch"
        )
    elif args.values["quantization"] in ("4bit", "8bit"):
        resolve_quantised_way(args, target.stack, announced=launched or args.values["sharding"] == "zero3")
    elif args.values["sharding"] == "zero3" or (launched and args.values["shards_by_tensor"]):
        args.derive("loads_through", "host", "no device map: the weights are sharded from host memory")
    elif not args.value("low_cpu_mem_usage"):
        why = "no device map without low_cpu_mem_usage: loaded into host memory"
        args.derive("loads_through", "host", why, key="low_cpu_mem_usage")
    else:
        args.derive("loads_through", "device", "device map: weights are loaded directly onto the card")
    halves = "train_sampling_strategy" not in args.words and args.values["quantization"] in ("4bit", "8bit")
    why = "transformers 4 counts a quantised base in 16 bits" if halves else "as transformers since 5.0"
    args.derive("halves_warm_up", halves, why)
    args.derive(
        "quantised_base_prepared", "no", "LLaMA-Factory casts nothing of a quantised base, except norms on request"
    )
