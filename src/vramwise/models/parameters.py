"""A model's parameters: names, shapes and order as in `named_parameters()` of transformers 5.

Tied weights appear once, as they do there. Experts are one 3-D tensor per projection, as transformers 5 stores them.
Does not know dtypes, adapters or quantisation, which belong to a run, nor buffers (rotary tables, router corrections).
Families define the layouts; the tests compare every family with transformers on the meta device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from vramwise.models.families import block_of, layout_of, recorded_parameters
from vramwise.models.families.parts import Kind, Parameter
from vramwise.types import ModelSpec

__all__ = ["Linear", "Parameter", "linear_modules", "parameter_count", "parameters"]


class Linear(NamedTuple):
    """A linear module, by the name PEFT and bitsandbytes see: `model.layers.3.mlp.up_proj`."""

    name: str
    in_features: int
    out_features: int
    bias: bool
    layer: int | None
    head: bool = False  # the output head: PEFT's all-linear and bitsandbytes skip it


@lru_cache(maxsize=64)
def parameters(model: ModelSpec) -> Sequence[Parameter]:
    """Return every parameter, in the order of `model.named_parameters()`."""
    recorded = recorded_parameters(model)
    if recorded is not None:
        return recorded
    layout, block = layout_of(model), block_of(model)
    found = [Parameter(name, shape, cast(Kind, kind)) for name, shape, kind in model.tower]
    found += layout.embeddings(model)
    for layer in range(1 if layout.shared_layers else model.num_hidden_layers):
        start = layout.start(model, layer)
        found += [Parameter(start + name, shape, kind, layer) for name, shape, kind, _ in _block(model, layer)]
    final = list(layout.final(model, block))
    found += [parameter for parameter in final if parameter.kind != "lm_head"]
    found += [Parameter(name, shape, cast(Kind, kind)) for name, shape, kind in model.after_text]
    found += [parameter for parameter in final if parameter.kind == "lm_head"]
    return tuple(found)


def _block(model: ModelSpec, layer: int) -> Sequence[Parameter]:
    """Return the parameters of one block; for families with two kinds of layers, each kind is built once."""
    layout = layout_of(model)
    if layout.by_layer is not None:
        return tuple(layout.by_layer(model, block_of(model), layer))
    return _block_of_kind(model, model.num_experts > 0 and layer not in model.dense_layers)


@lru_cache(maxsize=128)
def _block_of_kind(model: ModelSpec, sparse: bool) -> Sequence[Parameter]:
    return tuple(layout_of(model).block(model, block_of(model), sparse))


@lru_cache(maxsize=64)
def parameter_count(model: ModelSpec) -> int:
    """Return the number of parameters; tied weights count once."""
    return sum(parameter.numel for parameter in parameters(model))


@lru_cache(maxsize=64)
def linear_modules(model: ModelSpec) -> Sequence[Linear]:
    """Return every linear module in order, the output head last (also if its weight is tied to the embeddings).

    Routers and 3-D experts are not linear modules in transformers 5: bitsandbytes does not quantise them.
    """
    found = parameters(model)
    biased = {parameter.name.removesuffix(".bias") for parameter in found if parameter.kind == "bias"}
    modules = []
    for parameter in found:
        if parameter.kind not in ("linear", "conv1d"):
            continue
        name = parameter.name.removesuffix(".weight")
        # GPT-2's Conv1D stores its weight as (in, out), nn.Linear as (out, in).
        size = parameter.shape if parameter.kind == "conv1d" else parameter.shape[::-1]
        modules.append(Linear(name, size[0], size[1], name in biased, parameter.layer))
    head = "lm_head"
    if model.trace is not None:
        head = next((item.name.removesuffix(".weight") for item in found if item.kind == "lm_head"), head)
    modules.append(Linear(head, model.hidden_size, model.vocab_size, model.lm_head_bias, None, head=True))
    return tuple(modules)
