"""The text of a script that would make the same trainer: its arguments, model, quantisation and adapter.

The reader of scripts then reads a trainer as it reads any file, and changes are shown as changes of these lines. Only
attributes are read: nothing is imported, called on the card or changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.loops import OPTIMIZERS
from vramwise.training.live.model import adapted, adapter_of, base_dtype, inner, quantised

# Set by TrainingArguments itself, or no business of a prediction.
_LEFT_OUT = (
    *("token", "run_name", "logging_dir", "disable_tqdm", "report_to", "project", "trackio", "local_rank", "debug"),
    *("accelerator_config", "pin_memory"),
)
# Derived from another argument, beside which the class itself refuses them.
_DERIVED: Mapping[str, str] = {"generation_batch_size": "steps_per_generation"}
# Written even where they have their defaults: what these do depends on the release.
_ALWAYS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "optim", "bf16", "fp16", "gradient_checkpointing"),
    *("max_length", "use_liger_kernel", "eval_strategy", "max_grad_norm", "packing"),
)


class Unwritten(Exception):  # noqa: N818 (it reads as what happened)
    """A value that no source text stands for."""


def class_of(thing: object, known: Mapping[str, Any] | frozenset[str]) -> type | None:
    """Return the class of an object, or the first one that it extends, that has one of these names in its library."""
    own = (one for one in type(thing).__mro__ if one.__name__ in known)
    return next((one for one in own if one.__module__.partition(".")[0] in calls.LIBRARIES), None)


def script_of(model: Any, made: str, arguments: Mapping[str, Any], config: str, *, reference: bool = False) -> str:
    """Return the script. `made`: the trainer's class, `config`: that of its arguments.

    `reference`: the trainer has a second model.
    """
    package = "trl" if calls.TRAINERS[made][0] == "trl" else "transformers"
    base = inner(model)
    owner = type(base).__name__
    lines = [
        "import torch",
        f"from transformers import BitsAndBytesConfig, {owner}",
        "from peft import LoraConfig, get_peft_model",
        f"from {package} import {made}, {config}",
        "",
        _call("model", f"{owner}.from_pretrained", dict(_loading(base)), name_of(base)),
    ]
    adapter = adapter_of(model)
    if adapter is not None:
        lines.append(_call("adapter", type(adapter).__name__, dict(_adapter(model, adapter))))
    if adapter is not None and package != "trl":
        lines.append("model = get_peft_model(model, adapter)")
    given = {"model": Source("model"), "args": Source("args")}
    if adapter is not None and package == "trl":
        given["peft_config"] = Source("adapter")
    if reference:
        lines.append(_call("reference", f"{owner}.from_pretrained", {}, name_of(base)))
        given["ref_model"] = Source("reference")
    lines += [_call("args", config, arguments), _call("trainer", made, given)]
    return "\n".join(lines) + "\n"


class Source(str):
    """A value that is source text already."""

    __slots__ = ()


def name_of(base: Any) -> str:
    """Return what the model was loaded as, or its class."""
    return str(getattr(base.config, "_name_or_path", "") or type(base).__name__)


def arguments_of(args: Any, config: type) -> dict[str, Any]:
    """Return the arguments that differ from the defaults of their class, and those that decide most."""
    found = {}
    for field in fields(config) if is_dataclass(config) else ():
        value = plain(getattr(args, field.name, None))
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        unused = field.name == "fsdp_config" and not getattr(args, "fsdp", None)
        if not field.init or unused or any(part in field.name for part in _LEFT_OUT):
            continue
        if (value != plain(default) or field.name in _ALWAYS) and _is_written(value):
            found[field.name] = value
    return {name: value for name, value in found.items() if not found.get(_DERIVED.get(name, ""))}


def checkpointing(model: Any, arguments: dict[str, Any]) -> None:
    """Add checkpointing that the model's own method has turned on, if the arguments do not do it."""
    newer = arguments.pop("activation_checkpointing", None)
    functions = [
        module._gradient_checkpointing_func
        for module in inner(model).modules()
        if getattr(module, "gradient_checkpointing", False) and hasattr(module, "_gradient_checkpointing_func")
    ]
    if newer or arguments.get("gradient_checkpointing") or not functions:
        arguments["gradient_checkpointing"] = bool(newer or arguments.get("gradient_checkpointing"))
        return
    arguments["gradient_checkpointing"] = True
    words = getattr(functions[0], "keywords", {})
    arguments["gradient_checkpointing_kwargs"] = {key: one for key, one in words.items() if isinstance(one, bool)}


def optimizer_name(optimizer: Any) -> str:
    """Return the name by which TrainingArguments would ask for an optimizer."""
    while hasattr(optimizer, "optimizer"):  # accelerate's wrapper
        optimizer = optimizer.optimizer
    kind = type(optimizer).__name__
    name = OPTIMIZERS.get(kind, kind.lower())
    groups = getattr(optimizer, "param_groups", ())
    if name == "adamw_torch" and any(group.get("fused") for group in groups):
        return "adamw_torch_fused"
    if type(optimizer).__module__.startswith("bitsandbytes") and kind in ("AdamW", "Adam"):
        return "adamw_8bit" if getattr(getattr(optimizer, "args", None), "optim_bits", 32) == 8 else "adamw_torch"
    return name


def _loading(base: Any) -> Iterator[tuple[str, Any]]:
    dtype = base_dtype(base)
    if dtype is not None:
        yield "dtype", Source(str(dtype))
    attention = getattr(base.config, "_attn_implementation", None)
    if isinstance(attention, str):
        yield "attn_implementation", attention
    bits, weight = quantised(base)
    if bits is not None:
        yield "quantization_config", Source(f"BitsAndBytesConfig({_words(dict(_quantization(bits, weight)))})")
    if next(base.parameters()).device.type == "cuda":
        yield "device_map", {"": 0}
    labels = getattr(base.config, "num_labels", None)
    if type(base).__name__.endswith(tuple(calls.HEADS)) and isinstance(labels, int):
        yield "num_labels", labels


def _quantization(bits: str, weight: Any) -> Iterator[tuple[str, Any]]:
    yield f"load_in_{bits}", True
    if bits == "4bit":
        state = getattr(weight, "quant_state", None)
        yield "bnb_4bit_quant_type", str(getattr(weight, "quant_type", "nf4"))
        yield "bnb_4bit_use_double_quant", bool(getattr(state, "nested", getattr(weight, "compress_statistics", True)))
        storage = str(getattr(weight, "quant_storage", "uint8")).removeprefix("torch.")
        if storage != "uint8":
            yield "bnb_4bit_quant_storage", storage


def _adapter(model: Any, adapter: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of PEFT's LoraConfig, with the modules and the rank that the model has."""
    if not type(adapter).__name__.endswith("LoraConfig"):
        return
    found = adapted(model)
    yield "r", found.rank or int(adapter.r)
    yield "target_modules", list(found.targets)
    for name in ("lora_alpha", "lora_dropout", "use_dora", "use_rslora", "modules_to_save", "target_parameters"):
        value = plain(getattr(adapter, name, None))
        if value and _is_written(value):
            yield name, value


def plain(value: Any) -> Any:
    """Return a value as source text can hold it: enums by their value, objects by their fields."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in (sorted(value, key=str) if isinstance(value, set) else value)]
    if hasattr(value, "to_dict") and not isinstance(value, type):
        return plain(value.to_dict())
    return value


def _is_written(value: Any) -> bool:
    try:
        _text(value)
    except Unwritten:
        return False
    return True


def _text(value: Any) -> str:
    if isinstance(value, Source):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if type(value).__name__ == "dtype":
        return str(value)
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return repr(value)
    raise Unwritten


def _words(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in arguments.items())


def _call(name: str, function: str, arguments: Mapping[str, Any], first: str | None = None) -> str:
    """Return an assignment of a call, an argument a line: a change of one then shows as one line."""
    said = [*([] if first is None else [repr(first)]), *(f"{key}={_text(one)}" for key, one in arguments.items())]
    return "\n".join([f"{name} = {function}(", *(f"    {one}," for one in said), ")"])
