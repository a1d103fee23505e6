"""Which linear layer stands at a name: plain, quantised, with an adapter of which kind."""

from __future__ import annotations

from functools import partial

from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.model.compiled import AddedLoraLinear
from vramwise.ghost.model.linear import AddedBias, Conv1d, Dora, DoraLinear, LoraLinear, Projection
from vramwise.ghost.model.oft import OftLinear
from vramwise.ghost.model.quantised import Linear4bit, Linear8bit, QuantisedLoraLinear
from vramwise.ghost.ops.quantised import dequantised
from vramwise.ghost.tape import Parameter
from vramwise.ghost.weights import Weights


def projection(weights: Weights, name: str) -> Projection:
    """The linear layer of that name, with its adapter if it has one."""
    run = weights.run
    bias = weights.get(f"{name}.bias")
    shape = weights.shapes.get(f"{name}.weight")
    base: Projection
    kind = weights.block.linear
    if shape is None and kind == "transposed" and name != "lm_head":
        base = Conv1d(weights.by_name[f"{name}.weight"], bias)
    elif shape is None and kind == "bias added apart" and bias is not None:
        base = AddedBias(weights.by_name[f"{name}.weight"], bias)
    elif shape is None:
        base = weights.multiplier(weights.by_name[f"{name}.weight"], bias)
    elif run.loading.quantization == "8bit":
        model = weights.model
        gated = run.loading.int8_outliers and model.gated_mlp and name.endswith("down_proj")
        # a compiled graph keeps what its backward pass needs; a layer with an adapter is left out of it
        forgets = weights.compiled and name not in weights.adapters and not name.endswith(weights.block.attention)
        width = model.hidden_size if gated else None
        base = Linear8bit((shape[0], shape[1]), width, keeps=not forgets, trained=not model.random_weights)
    else:
        base = Linear4bit(
            (shape[0], shape[1]), bias, BY_NAME[run.precision.weights_dtype], nested=run.loading.nested_scales
        )
    rotation = weights.rotations.get(name)
    if rotation is not None:
        assert run.adapter.lora_r is not None
        return OftLinear(base, rotation, run.adapter.lora_r, quantised=shape is not None)
    pair = weights.adapters.get(name)
    if pair is None:
        return base
    magnitude = weights.magnitudes.get(name)
    if magnitude is not None:
        return _dora(weights, name, base, pair, magnitude)
    if weights.compiled:
        return AddedLoraLinear(base, pair[0], pair[1], run.adapter.lora_dropout)
    if shape is not None:
        return QuantisedLoraLinear(
            base, pair[0], pair[1], run.adapter.lora_dropout, clones=run.loading.quantization == "4bit"
        )
    return LoraLinear(base, pair[0], pair[1], run.adapter.lora_dropout)


def _dora(
    weights: Weights, name: str, base: Projection, pair: tuple[Parameter, Parameter], magnitude: Parameter
) -> Projection:
    quantised = weights.shapes.get(f"{name}.weight")
    shape = quantised or weights.by_name[f"{name}.weight"].shape
    dora = Dora(shape, pair[0], pair[1], magnitude, weights.get(f"{name}.bias"))
    if quantised is None:
        parameter = weights.by_name[f"{name}.weight"]
        return DoraLinear(base, lambda t: parameter, dora, weights.run.adapter.lora_dropout, quantised=False)
    compute = BY_NAME[weights.run.precision.weights_dtype]
    of = partial(dequantised, shape=shape, dtype=compute, nested=weights.run.loading.nested_scales)
    return DoraLinear(base, of, dora, weights.run.adapter.lora_dropout, quantised=True)
