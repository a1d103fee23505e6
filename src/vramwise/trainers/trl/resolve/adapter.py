"""Resolves what is trained and in which dtypes: LoRA, quantisation and attention, as TRL's scripts and trainers do.

Sources: trainer/model_config.py, trainer/utils.py (get_peft_config, get_quantization_config, create_model_from_path),
trainer/sft_trainer.py of TRL 1.16, and scripts/ of TRL 1.9 to 1.16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.trainers.arguments import (
    Arguments,
    loads_by_itself,
    resolve_adapter,
    resolve_loaded_type,
    resolve_unsaid_type,
)
from vramwise.trainers.arguments.resolve.adapter import PEFT_WIDENS
from vramwise.trainers.installed import default_attention, resolve_quantised_way, resolve_storage
from vramwise.types import Target

_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_INIT = "model_init_kwargs"
_OLD = "torch_dtype"  # named dtype since TRL 0.23, and removed in 0.27
_MERGED = (1, 14, 1)  # before, scripts replaced model_init_kwargs with their own
# Before this version, TRL prepared a quantised base as PEFT does (`prepare_peft_model`, sft_trainer.py of 0.4.7 to
# 0.26.2) and left adapters in fp32, and `dtype` had no default of TRL's own (`create_model_from_path` of 0.27.2).
_OWN_CAST = (0, 27)
# Since this version, it cast embeddings and head of a 4-bit base back for bf16 (`peft_module_casting_to_bf16`).
_CASTS_BACK = (0, 7, 7)


def init_kwarg(args: Arguments, name: str, target: Target) -> Any:
    """Return an entry of `model_init_kwargs`, which overrides the key of the same name since TRL 1.14.1; else None."""
    block = args.value(_INIT)
    if not isinstance(block, Mapping) or target.stack.parts("trl") < _MERGED:
        return None
    return block.get(name)


def resolve_method(args: Arguments, target: Target) -> None:
    """Fill the dtype of the weights, adapter, quantisation, attention and loading.

    Needs sharding and checkpointing.
    """
    _weights(args, target)
    resolve_adapter(args)
    _quantization(args, target)
    _attention(args, target)
    _loading(args, target)


def _weights(args: Arguments, target: Target) -> None:
    key, name = _said_dtype(args, target)
    if key == "dtype" and not args.written("dtype") and loads_by_itself(args):
        resolve_loaded_type(args, target)
        return
    if name is None and resolve_unsaid_type(args, target):
        return
    if isinstance(name, str) and name in _TYPES:
        why = f"{key} is {name}" if args.written(key) else f"unset: {key} is {name}, regardless of bf16"
        args.derive("weights_dtype", _TYPES[name], why, key=key)
    else:
        args.fields.keys["weights_dtype"] = key
        args.fields.assume("weights_dtype", "bf16", f"{key} {name}: the checkpoint's type, assumed to be bf16")
    wide = args.values["weights_dtype"] == "fp32"
    args.derive("fp32_embeddings", wide, "all weights are fp32" if wide else "all weights are of one type")


def _said_dtype(args: Arguments, target: Target) -> tuple[str, Any]:
    """Return the key that decides the dtype of the weights, and its value.

    transformers uses `torch_dtype` of model_init_kwargs only if dtype is null: TRL always passes dtype on. As a key of
    its own, `torch_dtype` stops TRL's command; the run is then resolved as if the key were renamed. A script started as
    a module drops it.
    """
    old, name = args.fields.config.get(_OLD), args.value("dtype")
    for kwarg in ("dtype", _OLD) if name is None else ("dtype",):
        if (said := init_kwarg(args, kwarg, target)) is not None:
            return _INIT, said
    if old is not None and not args.written("dtype") and target.launcher != "module":
        return _OLD, old
    return "dtype", name


def _quantization(args: Arguments, target: Target) -> None:
    bits = next((bits for bits in ("4bit", "8bit") if args.value(f"load_in_{bits}")), None)
    key = f"load_in_{bits}" if bits else "load_in_4bit"
    args.derive("quantization", bits, f"{key} is on" if bits else "the base is not quantised", key=key)
    own = "bnb_4bit_quant_storage" in args.words or args.fields.config.document.script is not None
    resolve_storage(args, args.value("bnb_4bit_quant_storage") if own else args.value("dtype"))
    nested = bool(args.value("use_bnb_nested_quant"))
    why = "use_bnb_nested_quant is on" if nested else "use_bnb_nested_quant is off by default"
    args.derive("nested_scales", nested if bits == "4bit" else True, why if bits == "4bit" else "no 4-bit base")
    args.derive("int8_outliers", bits == "8bit", "LLM.int8 handles values of 6 and above separately")
    _adapters(args, target, bits)
    _prepared(args, target, bits)


def _adapters(args: Arguments, target: Target, bits: str | None) -> None:
    """Fill the dtype of adapters."""
    half = bits is not None and args.values["adapter"] is not None and target.stack.parts("trl") >= _OWN_CAST
    why = "TRL casts the trained weights on a quantised base" if half else "no quantised base, or TRL before 0.27"
    args.derive("half_adapters", half, why)
    as_base = bits is None and target.stack.older_than("peft", PEFT_WIDENS)
    spread = bits is None and args.values["sharding"] == "zero3"
    why = "PEFT before 0.12 creates them in the base's type" if as_base else "PEFT makes them fp32"
    why = "TRL asks PEFT for the base's type under ZeRO 3" if spread and not as_base else why
    args.derive("adapters_as_base", spread or as_base, why)


def _prepared(args: Arguments, target: Target, bits: str | None) -> None:
    """Fill what is cast to fp32 of a quantised base: by the script, or by TRL before 0.27."""
    script, release = args.fields.config.document.script, target.stack.parts("trl")
    facts = {} if script is None else script.facts
    spread = args.values["sharding"] == "zero3" or args.values["sharding"].startswith("fsdp")
    by_trl = release < _OWN_CAST and not spread and "adapter created by the script" not in facts
    if bits is not None and by_trl and args.values["adapter"] is not None:
        back = bits == "4bit" and args.values["precision"] == "bf16" and release >= _CASTS_BACK
        why = "TRL before 0.27 prepares it with PEFT: unquantised weights are cast to fp32"
        args.derive(
            "quantised_base_prepared", "but embeddings" if back else "all", f"{why}{', embeddings back' * back}"
        )
        args.derive("upcasts_stay", True, "norms stay in fp32")
    elif bits is not None and "prepared" in facts:
        args.derive("quantised_base_prepared", "all", "the script calls prepare_model_for_kbit_training")
    else:
        args.derive("quantised_base_prepared", "no", "TRL does not prepare a quantised base: nothing is cast to fp32")


def _attention(args: Arguments, target: Target) -> None:
    said = init_kwarg(args, "attn_implementation", target)
    if isinstance(said, str):
        args.derive("attn_implementation", said, f"{_INIT} names it", key=_INIT)
        return
    name = args.value("attn_implementation")
    if isinstance(name, str):
        args.put("attn_implementation", "attn_implementation", name)
    else:
        name, why = default_attention(target.stack)
        args.put("attn_implementation", "attn_implementation", name, why=why)


def _loading(args: Arguments, target: Target) -> None:
    if args.values["quantization"] in ("4bit", "8bit"):
        resolve_quantised_way(args, target.stack)
    elif target.gpus > 1 or args.values["sharding"] != "none":
        args.derive("loads_through", "host", "no device map with several processes: weights move from host memory")
    else:
        args.derive("loads_through", "device", "device_map auto: weights are loaded directly onto the card")
