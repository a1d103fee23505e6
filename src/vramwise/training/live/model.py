"""What a live model is: its parameters as they are, its adapter, its quantised layers, its dimensions.

Attributes of modules and parameters are read; nothing is computed, moved or changed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from vramwise.errors import VramwiseError
from vramwise.models.known import model_of
from vramwise.models.parameters import parameters
from vramwise.types import ModelSpec

SOURCE = "the live model"
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|layer|blocks|block)\.(\d+)\.")
_QUANTISED = {"Linear4bit": "4bit", "Linear8bitLt": "8bit"}
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module)\.")
_TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


class Adapted(NamedTuple):
    """The modules that have an adapter, as they are given to PEFT, its rank, and whether ranks differ."""

    targets: tuple[str, ...]
    rank: int
    mixed: bool


def inner(model: Any) -> Any:
    """Return the model inside wrappers: torch.compile, DataParallel, PEFT, TRL's value head."""
    for _ in range(8):
        if hasattr(model, "get_base_model"):
            model = model.get_base_model()
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            model = model.module
        elif hasattr(model, "pretrained_model"):
            model = model.pretrained_model
        else:
            break
    return model


def adapter_of(model: Any) -> Any:
    """Return the config of the adapter that is trained, or None."""
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, dict) or not configs:
        return None
    active = getattr(model, "active_adapter", None)
    active = active() if callable(active) else active
    active = active[0] if isinstance(active, list) and active else active
    return configs.get(active) or next(iter(configs.values()))


def adapted(model: Any) -> Adapted:
    """Return the modules with a LoRA: by the shortest names that mean them alone, or else by their whole names."""
    modules = {bare_name(name): module for name, module in model.named_modules() if not name.endswith(".base_layer")}
    chosen = {name: module for name, module in modules.items() if getattr(module, "lora_A", None)}
    ranks = Counter(int(one.weight.shape[0]) for module in chosen.values() for one in module.lora_A.values())
    short = {name.rpartition(".")[2] for name in chosen}
    others = [
        name
        for name, module in modules.items()
        if name not in chosen and name.rpartition(".")[2] in short and hasattr(module, "weight")
    ]
    inside = tuple(f"{name}." for name in chosen)
    exact = any(not name.startswith(inside) for name in others)
    return Adapted(tuple(sorted(chosen if exact else short)), max(ranks, default=0), len(ranks) > 1)


def bare_name(name: str) -> str:
    """Return a module's or parameter's name as the model has it without PEFT and other wrappers."""
    name = _WRAPPERS.sub("", name).replace("base_model.model.", "", 1).replace(".base_layer", "")
    return re.sub(r"\.modules_to_save\.[^.]+", "", name)


def quantised(base: Any) -> tuple[str | None, Any]:
    """Return the bits of bitsandbytes layers, and the weight of the first; (None, None) without any."""
    for module in base.modules():
        bits = _QUANTISED.get(type(module).__name__)
        if bits is not None:
            return bits, module.weight
    return None, None


class Held(NamedTuple):
    """A parameter of the model: its own name, its name inside wrappers, and the parameter."""

    name: str
    full: str
    parameter: Any


def held(model: Any) -> Iterator[Held]:
    """Yield every parameter of the model itself, without adapters; a copy that PEFT trains stands for its original."""
    for full, parameter in model.named_parameters():
        if ".lora_" not in full and ".original_module." not in full:
            yield Held(bare_name(full), full, parameter)


def type_of(parameter: Any) -> str | None:
    """Return a parameter's dtype in our words; None for quantised and other types."""
    return _TYPES.get(str(parameter.dtype))


def base_dtype(base: Any) -> Any:
    """Return the dtype that most weights are in: of 16 bits, if any are, since others were then cast to 32."""
    _, weight = quantised(base)
    state = getattr(weight, "quant_state", None)
    if state is not None and getattr(state, "dtype", None) is not None:
        return state.dtype
    counts: Counter[Any] = Counter()
    for one in held(base):
        if type_of(one.parameter) is not None:
            counts[one.parameter.dtype] += one.parameter.numel()
    narrow = Counter({dtype: count for dtype, count in counts.items() if "float32" not in str(dtype)})
    return next((dtype for dtype, _ in (narrow or counts).most_common(1)), None)


def spec_of(base: Any, name: str) -> ModelSpec:
    """Return the dimensions of a model from its config and its layers. Raises VramwiseError if they are unsupported."""
    try:
        values = json.loads(base.config.to_json_string(use_diff=False))
    except (AttributeError, TypeError, ValueError) as error:
        raise VramwiseError(f"the model has no config that can be read: {error}") from error
    if quantised(base)[0] is not None and not getattr(getattr(base, "hf_quantizer", None), "pre_quantized", False):
        values.pop("quantization_config", None)
    numbers = {int(match[1]) for one in held(base) for match in [_LAYER.search(one.name)] if match}
    if isinstance(values.get("num_hidden_layers"), int) and not values.get("is_encoder_decoder") and numbers:
        layers = len(numbers) if len({_LAYER.sub("", one.name) for one in held(base)}) else 0
        text = "text_config" not in values and "vision_config" not in values
        if text and layers < values["num_hidden_layers"]:
            values["num_hidden_layers"] = layers
            if isinstance(values.get("layer_types"), list):
                values["layer_types"] = values["layer_types"][:layers]
    if "vocab_size" in values and (table := _table(base)) is not None:
        values["vocab_size"] = int(table.shape[0])
    return replace(model_of(values, name=name, source=SOURCE), name=name)


def _table(base: Any) -> Any:
    """Return the weight of the input embeddings, which may have been resized; None if it has no such table."""
    try:
        return base.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        return None


class Compared(NamedTuple):
    """The model's parameters beside those of its description.

    `same`: description's name → the parameter. `more`: parameters that only the model has; `lacking`: names that only
    the description has.
    """

    same: dict[str, Held]
    more: list[Held]
    lacking: list[str]


def compared(model: Any, spec: ModelSpec) -> Compared:
    """Return the live parameters by the names of a description, which may lack the prefix of the model's class."""
    live = list(held(model))
    prefix = f"{getattr(inner(model), 'base_model_prefix', '') or 'model'}."
    known = [one.name for one in parameters(spec)]
    names = max(
        ({one.name: one for one in live}, {one.name.removeprefix(prefix): one for one in live},
         {f"{prefix}{one.name}": one for one in live}),
        key=lambda found: sum(name in found for name in known),
    )  # fmt: skip
    same = {name: names[name] for name in known if name in names}
    used = {id(one.parameter) for one in same.values()}
    return Compared(
        same, [one for one in live if id(one.parameter) not in used], [one for one in known if one not in same]
    )


def expressions(names: Iterable[str], among: Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions that match these names and no others of all: one for each place in a layer."""
    chosen: dict[tuple[str, str], set[str]] = defaultdict(set)
    every: dict[tuple[str, str], set[str]] = defaultdict(set)
    for found, listed in ((chosen, names), (every, among)):
        for name in listed:
            start, number, end = _split(name)
            found[start, end].add(number)
    said = []
    for (start, end), numbers in chosen.items():
        if numbers == {""}:
            middle = ""
        elif numbers == every[start, end]:
            middle = r"\d+"
        else:
            middle = f"(?:{'|'.join(sorted(numbers, key=int))})"
        said.append(f"{re.escape(start)}{middle}{re.escape(end)}$")
    return tuple(said)


def _split(name: str) -> tuple[str, str, str]:
    match = _LAYER.search(name)
    return (name, "", "") if match is None else (name[: match.start(1)], match[1], name[match.end(1) :])
