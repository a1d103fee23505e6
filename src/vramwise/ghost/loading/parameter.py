"""One parameter on the card: whole, quantised or this rank's share of it; and the buffers of the rotary tables.

bitsandbytes nf4 with double quantisation: the weight arrives in the storage type and is packed to half a byte an
element with an fp32 scale for 64; the scales lose their mean and are packed to 8 bits with an fp32 scale for 256.
8-bit: it arrives in fp16; if it was on the device before, in the storage type, both copies are there for a moment.
"""

from __future__ import annotations

from math import prod

from vramwise.ghost.dtypes import FP16, DType
from vramwise.ghost.ops.quantised import SCALE_BLOCK, scales
from vramwise.ghost.ops.reduce import staging_bytes
from vramwise.ghost.sharding.fsdp_units import gathered_dtype, padded_share, shard_dtype
from vramwise.ghost.sharding.zero import cut_as_loaded
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.types import ModelSpec

_CODE_BYTES = 16 * 4
_SCALE_CODE_BYTES = 256 * 4


def quantise_4bit(
    t: Tape, shape: tuple[int, ...], dtype: DType, arrived: Storage | None = None, *, nested: bool = True
) -> list[Storage]:
    """Quantise a weight, brought to the device now or `arrived` already; returns the blocks that stay.

    `nested`: its scales are quantised too.
    """
    numel = prod(shape)
    count = scales(numel)
    weight = arrived or Storage(t, numel * dtype.size)
    absmax = Storage(t, count * 4)
    packed = Storage(t, -(-numel // 2))
    code = Storage(t, _CODE_BYTES)
    copied = Storage(t, _CODE_BYTES)
    largest = Storage(t, 4)
    del copied, largest
    if not nested:
        del weight
        return [packed, code, absmax]
    mean = _mean(t, count)
    centred = Storage(t, count * 4)
    kept = [packed, code, mean]
    if "dynamic map" not in t.once:
        t.once["dynamic map"] = Storage(t, _SCALE_CODE_BYTES)
    kept.append(Storage(t, -(-count // SCALE_BLOCK) * 4))
    kept.append(Storage(t, count))
    kept.append(Storage(t, _SCALE_CODE_BYTES))
    del centred
    del absmax
    del weight
    return kept


def packed_4bit(t: Tape, shape: tuple[int, ...]) -> list[Storage]:
    """Return a weight that the checkpoint holds packed: the same blocks, and nothing passes by."""
    numel = prod(shape)
    count = scales(numel)
    sizes = (-(-numel // 2), _CODE_BYTES, 4, -(-count // SCALE_BLOCK) * 4, count, _SCALE_CODE_BYTES)
    return [Storage(t, size) for size in sizes]


def quantise_8bit(t: Tape, shape: tuple[int, ...]) -> list[Storage]:
    """Return one byte an element and an fp32 scale a row, from a copy in fp16."""
    numel = prod(shape)
    weight = Storage(t, numel * FP16.size)
    kept = [Storage(t, numel // shape[-1] * 4), Storage(t, numel)]
    del weight
    return kept


def _mean(t: Tape, count: int) -> Storage:
    out = Storage(t, 4)
    buffer, semaphores = staging_bytes(1, count, along_rows=True, hardware=t.hardware)
    if buffer:
        held = Storage(t, buffer)
        Storage(t, semaphores)
        del held
    return out


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
    """Return a parameter, or this rank's share of it. `arrived`: the memory that holds it already."""
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
    """Return a rank's share in the type it is kept in; to its users it is of the type it is gathered in."""
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
