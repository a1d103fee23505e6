"""One parameter on the card: whole, or this rank's share of it."""

from __future__ import annotations

from math import prod

from vramwise.ghost.dtypes import DType
from vramwise.ghost.sharding.fsdp_units import gathered_dtype, padded_share, shard_dtype
from vramwise.ghost.sharding.zero import cut_as_loaded
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights


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
