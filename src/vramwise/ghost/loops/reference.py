"""The reference of the policy: a second model, the base with its adapter off, or a frozen copy of the adapter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from vramwise.ghost.build import Builder
from vramwise.ghost.dtypes import BF16
from vramwise.ghost.loading import load_reference
from vramwise.ghost.model.causal_lm import Body
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.sharding.fsdp_units import Units
from vramwise.ghost.sharding.zero_engine import ZeroEngine
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.types import ModelSpec, RunSpec


@dataclass(frozen=True, slots=True)
class Model:
    """What a forward pass needs."""

    body: Body
    head: Projection
    units: Units | ZeroEngine | None


HalfOrFull = Literal["bf16", "fp16", "fp32"]


def load_model(t: Tape, run: RunSpec, model: ModelSpec, sharding: Sharding, dtype: HalfOrFull) -> Weights:
    """Load a whole model in addition to the policy, in this dtype, without trained parameters."""
    plain = run.changed(
        adapter=None, weights_dtype=dtype, fp32_embeddings=run.precision.fp32_embeddings or dtype == "fp32"
    )
    if run.objective.reference_whole and sharding.fsdp is not None and sharding.fsdp.version == 2:
        whole = replace(sharding.fsdp, one_unit=True, drops_root=run.sharding.reshard_after_forward)
        sharding = replace(sharding, fsdp=whole)
    return load_reference(t, model, plain, sharding)


def without_adapter(weights: Weights) -> Weights:
    """Return the same weights with the adapter off: modules saved as a whole are replaced by the originals."""
    plain = _sharing(weights)
    plain.by_name |= {original.name: original for original in weights.replaced}
    plain.adapters, plain.magnitudes, plain.targets = {}, {}, {}
    return plain


def with_adapter_copy(t: Tape, weights: Weights) -> Weights:
    """Return the same base with a second adapter of the same shape and dtype."""
    copy = _sharing(weights)
    copy.adapters = {name: (_twin(t, a), _twin(t, b)) for name, (a, b) in weights.adapters.items()}
    copy.magnitudes = {name: _twin(t, magnitude) for name, magnitude in weights.magnitudes.items()}
    return copy


def _sharing(weights: Weights) -> Weights:
    shared = Weights(weights.model, weights.run, weights.sharding)
    for name in Weights.__slots__:
        setattr(shared, name, getattr(weights, name))
    shared.by_name = dict(weights.by_name)
    return shared


def _twin(t: Tape, parameter: Parameter) -> Parameter:
    t.mark("weights", f"{parameter.name} of the reference")
    return Parameter(t, parameter.name, parameter.shape, parameter.dtype, trainable=True)


def adapters_in_bf16(t: Tape, weights: Weights) -> None:
    """Cast trained parameters to bf16, except DoRA's magnitudes, as TRL does on a quantised base."""
    magnitudes = {id(parameter) for parameter in weights.magnitudes.values()}
    for parameter in weights.trainable():
        if id(parameter) in magnitudes or parameter.dtype is BF16:
            continue
        t.mark("weights", parameter.name)
        if parameter.storage is not None:
            parameter.storage = Storage(t, parameter.storage.nbytes // parameter.dtype.size * BF16.size)
        parameter.dtype = parameter.state_dtype = BF16


def built(weights: Weights, shared: Units | None) -> Model:
    """Return the model of these weights, without checkpointing: reference passes save nothing for backward.

    `shared`: the policy's units, if it uses these weights.
    """
    builder = Builder(weights, shared)
    body, head = builder.body(), builder.head()
    return Model(body, head, builder.gathering.units)
