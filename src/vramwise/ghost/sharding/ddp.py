"""DDP: rank 0's weights are sent to all when the model is wrapped; gradients are exchanged in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.models.parameters import parameters

# Gradients are exchanged in buckets of that size, the first of them smaller so that it starts early.
_BUCKET_BYTES = 25 * 1024 * 1024
_FIRST_BUCKET_BYTES = 1024 * 1024
# Weights are sent in buckets of that size, so many at a time.
_SENT_BYTES = 250 * 1024 * 1024
_IN_FLIGHT = 2

# A tensor: its type ("4-bit" and "8-bit" are types of their own), and its bytes.
State = tuple[str, int]


def wrap(t: Tape, weights: Weights, trainable: list[Parameter]) -> list[Storage]:
    """What DDP does when it wraps a model: rank 0's weights are sent to all, then buckets for gradients are made.

    Returns the buckets; none where the run is not under DDP.
    """
    if not weights.sharding.buckets:
        return []
    _send(t, states_of(weights))
    return _first_buckets(t, trainable)


def _send(t: Tape, states: Iterable[State]) -> None:
    """torch's `_sync_module_states`: c10d's `broadcast_coalesced` copies each bucket of weights into a flat one.

    One tensor alone is sent where it is. A third bucket waits until the first has arrived.
    """
    t.mark("temporary", "weights that DDP sends")
    under_way: list[Storage | None] = []
    for sizes in sent_buckets(states):
        if len(under_way) == _IN_FLIGHT:
            under_way.pop(0)
        under_way.append(Storage(t, sum(sizes)) if len(sizes) > 1 else None)


def states_of(weights: Weights) -> Iterator[State]:
    """Yield all parameters as torch goes through them, adapters behind their modules; then buffers."""
    replaced = {parameter.name: parameter for parameter in weights.replaced}
    for name, *_ in parameters(weights.model):
        if name in weights.quantised:
            packed = weights.quantised[name][0]
            yield f"{weights.run.loading.quantization}", packed.nbytes
        for parameter in (replaced.get(name), weights.by_name.get(name), *_adapter(weights, name)):
            if parameter is not None and parameter.storage is not None:
                yield parameter.dtype.name, parameter.storage.nbytes
    for buffer in weights.buffers:
        yield FP32.name, buffer.nbytes


def _adapter(weights: Weights, name: str) -> tuple[Parameter, ...]:
    module = name.removesuffix(".weight")
    magnitude = weights.magnitudes.get(module)
    return (*weights.adapters.get(module, ()), *(() if magnitude is None else (magnitude,)))


def sent_buckets(states: Iterable[State]) -> list[list[int]]:
    """The bytes of each tensor in each bucket: each type by itself, closed once full, in the order of first tensors."""
    closed: list[tuple[int, list[int]]] = []
    filling: dict[str, tuple[int, list[int]]] = {}
    for position, (kind, nbytes) in enumerate(states):
        first, sizes = filling.setdefault(kind, (position, []))
        sizes.append(nbytes)
        if sum(sizes) >= _SENT_BYTES:
            closed.append((first, sizes))
            del filling[kind]
    return [sizes for _, sizes in sorted([*closed, *filling.values()])]


def _first_buckets(t: Tape, trainable: list[Parameter]) -> list[Storage]:
    """Return the flat buffers that gradients are exchanged in: they hold all of them."""
    t.mark("gradients", "communication buckets")
    # until DDP has seen in which order gradients come, all of one type are one bucket
    by_dtype: dict[DType, int] = {}
    for parameter in trainable:
        by_dtype[parameter.dtype] = by_dtype.get(parameter.dtype, 0) + parameter.numel * parameter.dtype.size
    return [Storage(t, nbytes) for nbytes in by_dtype.values()]


def rebuild_buckets(t: Tape, buckets: list[Storage], trainable: list[Parameter]) -> None:
    """After DDP's first step the buckets are made anew, smaller ones, so that they can be sent while others fill."""
    buckets.clear()
    t.mark("gradients", "communication buckets")
    buckets += [Storage(t, nbytes) for nbytes in bucket_sizes(trainable)]


def bucket_sizes(trainable: list[Parameter]) -> list[int]:
    """DDP's buckets, each type by itself; one that has reached its size is closed.

    They are filled in the order in which gradients came: taken to be the parameters' own, from the last one on.
    """
    closed: list[int] = []
    filling: dict[DType, int] = {}
    limits: dict[DType, int] = {}
    for parameter in reversed(trainable):
        dtype = parameter.dtype
        filling[dtype] = filling.get(dtype, 0) + parameter.numel * dtype.size
        if filling[dtype] >= limits.get(dtype, _FIRST_BUCKET_BYTES):
            closed.append(filling.pop(dtype))
            limits[dtype] = _BUCKET_BYTES
    return closed + list(filling.values())
