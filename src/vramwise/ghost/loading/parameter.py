"""One parameter on the card, whole or this rank's share of it; and the buffers of the rotary tables."""

from __future__ import annotations

from math import prod

from vramwise.ghost.dtypes import DType
from vramwise.ghost.sharding.fsdp_units import gathered_dtype, padded_share, shard_dtype
from vramwise.ghost.sharding.zero import cut_as_loaded
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.types import ModelSpec


def new_parameter(
    t: Tape,
    weights: Weights,
    name: str,
    shape: tuple[int, ...],
    dtype: DType,
    *,
    trainable: bool,
    arrived: Storage | None = None,
) -> Parameter:
    """A parameter, or this rank's share of it. `arrived`: the memory that holds it already."""
    sharding = weights.sharding
    if arrived is not None:
        made = Parameter(t, name, shape, dtype, trainable=trainable, stored=0)
        made.storage = arrived
        made.local = sharding.share(made.numel, of=sharding.grads)
        return made
    if sharding.zero is not None:
        return _zero_parameter(t, weights, name, shape, dtype, trainable=trainable)
    if sharding.ranks == 1 and not sharding.host_weights:
        return Parameter(t, name, shape, dtype, trainable=trainable)
    if sharding.fsdp is not None:
        return fsdp_parameter(t, weights, name, shape, dtype, trainable=trainable)
    numel = prod(shape)
    stored = 0 if sharding.host_weights else sharding.share(numel, of=sharding.weights)
    made = Parameter(t, name, shape, dtype, trainable=trainable, stored=stored)
    made.local = sharding.share(numel, of=sharding.grads)
    return made


def _zero_parameter(
    t: Tape, weights: Weights, name: str, shape: tuple[int, ...], dtype: DType, *, trainable: bool
) -> Parameter:
    """Whole, but for weights of the model itself under ZeRO 3; quantised models are cut later."""
    zero, run = weights.sharding.zero, weights.run
    adapter = trainable and run.adapter.kind is not None
    if zero is None or zero.stage < 3 or adapter or run.loading.quantization is not None:
        return Parameter(t, name, shape, dtype, trainable=trainable)
    made = Parameter(t, name, shape, dtype, trainable=trainable, stored=0)
    made.storage = cut_as_loaded(t, made.numel, dtype, zero)
    return made


def fsdp_parameter(
    t: Tape, weights: Weights, name: str, shape: tuple[int, ...], dtype: DType, *, trainable: bool
) -> Parameter:
    """A rank's share in the type it is kept in; to its users it is of the type it is gathered in."""
    sharding = weights.sharding
    assert sharding.fsdp is not None
    local = padded_share(shape, sharding.ranks)
    kept = shard_dtype(sharding.fsdp, dtype, trainable=trainable)
    made = Parameter(t, name, shape, gathered_dtype(sharding.fsdp, dtype), trainable=trainable, stored=0)
    share = Storage(t, local * kept.size)
    made.storage = None if sharding.host_weights else share  # cut on the card, and moved
    made.local = local
    made.state_dtype = kept
    return made


def rotary_buffers(t: Tape, model: ModelSpec, *, computed_on_device: bool) -> list[Storage]:
    """Both buffers. Computed on the host they are only copied; on the device the steps of the formula pass by."""
    if model.rotary_fraction == 0:
        return []
    t.mark("weights", "rotary frequencies")
    nbytes = max(int(model.head_dim * model.rotary_fraction) // 2, 1) * 4
    if not computed_on_device:
        return [Storage(t, nbytes), Storage(t, nbytes)]
    moved = Storage(t, nbytes)
    copied = Storage(t, nbytes)
    del moved
    range_ = Storage(t, nbytes)
    Storage(t, 8)
    del copied
    divided = Storage(t, nbytes)
    kept = [Storage(t, nbytes)]
    del divided
    del range_
    kept.append(Storage(t, nbytes))
    return kept
