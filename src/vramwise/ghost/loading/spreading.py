"""FSDP: shards are cut from whole weights, which are on the card for a while. How much is whole at a time:

- one unit, from host memory: torch's `fully_shard` moves the weights of a unit to the card, cuts each of them, and
  drops the whole ones when it returns. FSDP 1 first joins them into a flat one.
- one tensor, where rank 0 alone has read the model (accelerate's `fsdp2_load_full_state_dict`);
- everything, where the card holds the model before (a 4-bit base): accelerate keeps a state dict until all is cut.

Shards that are trained in fp32 are cut of weights in fp32, or cast when all are cut (FSDP 1, accelerate before 1.13).
Nothing is handed back afterwards: the steps find it in the allocator's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from vramwise.ghost.dtypes import BY_NAME, FP32, DType
from vramwise.ghost.loading.adapters import (
    Planned,
    adapter_beside,
    adapter_dtype,
    adapter_numel,
    copy_saved,
    planned_adapters,
)
from vramwise.ghost.loading.casts import KEPT_TOGETHER
from vramwise.ghost.loading.parameter import new_parameter, packed_4bit, rotary_buffers
from vramwise.ghost.loading.reading import bits_of
from vramwise.ghost.sharding import Fsdp
from vramwise.ghost.sharding.fsdp_units import shard_dtype
from vramwise.ghost.tape import Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.models.families import layout_of
from vramwise.models.families.parts import Parameter as Described
from vramwise.models.parameters import parameters


def spread(t: Tape, weights: Weights, whole: Weights | None, *, trainable: bool) -> None:
    """Cut the weights into shards, from host memory or from `whole` on the card.

    The caller drops `whole` afterwards. `trainable`: the model's own weights are trained.
    """
    fsdp = _fsdp(weights)
    later = fsdp.version == 1 or fsdp.widens == "all"
    final = weights.sharding
    if later:
        weights.sharding = replace(final, fsdp=replace(fsdp, widens="nothing"))
    if whole is None:
        _from_host(t, weights, trainable=trainable)
    else:
        _from_device(t, weights, whole, trainable=trainable)
    weights.sharding = final
    if later:
        _widen(t, weights)


def _widen(t: Tape, weights: Weights) -> None:
    """Cast trained shards to fp32, one after the other.

    FSDP 2 holds the old shards of a unit until all of the unit is cast, and those outside of blocks to the end.
    """
    fsdp, layout = _fsdp(weights), layout_of(weights.model)
    start = f"{layout.inside(weights.model, layout.layers)}."
    block, old = "", dict[str, list[Storage]]()
    pairs = [parameter for pair in weights.adapters.values() for parameter in pair]
    for parameter in (*weights.by_name.values(), *weights.replaced, *pairs, *weights.magnitudes.values()):
        dtype = shard_dtype(fsdp, parameter.state_dtype, trainable=parameter.node is not None)
        if dtype is parameter.state_dtype:
            continue
        t.mark("weights", parameter.name)
        unit = parameter.name.removeprefix(start).partition(".")[0] if parameter.name.startswith(start) else ""
        if unit != block and block:
            old.pop(block, None)
        block = unit
        if parameter.storage is not None:
            if fsdp.version == 2:
                old.setdefault(unit, []).append(parameter.storage)
            parameter.storage = Storage(t, parameter.local * dtype.size)
        parameter.state_dtype = dtype


def _from_host(t: Tape, weights: Weights, *, trainable: bool) -> None:
    """Cut a model in host memory unit by unit or tensor by tensor; a tied head is sent too, and tied again."""
    planned = planned_adapters(weights)
    fsdp = _fsdp(weights)
    loading = weights.run.loading
    by_tensor = fsdp.version == 2 and loading.shards_by_tensor and loading.quantization is None and not fsdp.one_unit
    for unit in [[one] for one in parameters(weights.model)] if by_tensor else _units(weights):
        t.mark("weights", f"{unit[0].name}: whole")
        whole = [
            Storage(t, nbytes) for parameter in unit for nbytes in _whole_bytes(weights, parameter, planned, trainable)
        ]
        flat = Storage(t, sum(one.nbytes for one in whole)) if fsdp.version == 1 else None
        for parameter in unit:
            _cut(t, weights, parameter, planned, trainable=trainable)
        del whole, flat
    if by_tensor and weights.model.tie_word_embeddings:
        tied = next(one for one in parameters(weights.model) if one.kind == "embedding")
        size = _whole_bytes(weights, tied, {}, trainable)[0]
        again = [Storage(t, size), Storage(t, size // weights.sharding.ranks)]
        del again
    _finish(t, weights, planned)


def _from_device(t: Tape, weights: Weights, whole: Weights, *, trainable: bool) -> None:
    """Cut a model that is on the card."""
    planned = planned_adapters(weights)
    for unit in _units(weights):
        for parameter in unit:
            _cut(t, weights, parameter, planned, trainable=trainable, whole=whole)
    weights.buffers += whole.buffers
    _finish(t, weights, planned)


def _finish(t: Tape, weights: Weights, planned: Planned) -> None:
    for name in [*planned]:  # of a head that is tied, which is no parameter of its own
        adapter_beside(t, weights, name, planned)
    if not weights.buffers:
        weights.buffers += rotary_buffers(t, weights.model, computed_on_device=False)


def _fsdp(weights: Weights) -> Fsdp:
    fsdp = weights.sharding.fsdp
    assert fsdp is not None
    return fsdp


def _units(weights: Weights) -> Iterator[list[Described]]:
    """Yield the weights of each unit in the order in which units are made: blocks first, the rest last."""
    model, layout = weights.model, layout_of(weights.model)
    if _fsdp(weights).one_unit:
        yield [*parameters(model)]
        return
    embedding = f"{layout.inside(model, layout.embedding)}."
    start = f"{layout.inside(model, layout.layers)}."
    found: dict[str, list[Described]] = {}
    outside: list[Described] = []
    for parameter in parameters(model):
        if parameter.name.startswith(start):
            number = parameter.name.removeprefix(start).partition(".")[0]
            found.setdefault(number, []).append(parameter)
        else:
            outside.append(parameter)
    yield from found.values()
    if _fsdp(weights).one_root or model.tie_word_embeddings:
        yield outside
        return
    apart = [[p for p in outside if p.name.startswith(embedding) is first] for first in (True, False)]
    yield from [unit for unit in apart if unit]


def _dtype(weights: Weights, parameter: Described, trainable: bool) -> DType:
    """Return the type of a weight before it is cut: some trainers cast what is trained first."""
    run = weights.run
    wide = run.precision.fp32_embeddings and parameter.kind in KEPT_TOGETHER
    return FP32 if wide or (trainable and run.loading.trains_in_fp32) else BY_NAME[run.precision.weights_dtype]


def _whole_bytes(weights: Weights, parameter: Described, planned: Planned, trainable: bool) -> list[int]:
    """Return the bytes of a weight and of its adapter's matrices, before they are cut."""
    numel = prod(parameter.shape)
    kept = shard_dtype(_fsdp(weights), _dtype(weights, parameter, trainable), trainable=trainable)
    bits = bits_of(weights.run, parameter)
    own = numel * kept.size if bits is None else numel if bits == "8bit" else -(-numel // 2)
    return [
        own,
        *(count * adapter_dtype(weights.run).size for count in adapter_numel(weights, parameter.name, planned)),
    ]


def _cut(
    t: Tape,
    weights: Weights,
    parameter: Described,
    planned: Planned,
    *,
    trainable: bool,
    whole: Weights | None = None,
) -> None:
    """Make this rank's share of a weight, and of its adapter after it."""
    name = parameter.name
    t.mark("weights", name)
    if bits_of(weights.run, parameter) is not None:
        _cut_quantised(t, weights, parameter, whole)
    else:
        dtype = _dtype(weights, parameter, trainable)
        weights.by_name[name] = new_parameter(t, weights, name, parameter.shape, dtype, trainable=trainable)
        copy_saved(t, weights, name)
    adapter_beside(t, weights, name, planned)


def _cut_quantised(t: Tape, weights: Weights, parameter: Described, whole: Weights | None) -> None:
    """Make this rank's share of a quantised weight.

    4-bit weights are cut as others are; their scales stay whole. 8-bit weights stay whole, and so do, under FSDP 2,
    tensors that are not floating-point: experts, and a base kept as bytes.
    """
    name, sharding = parameter.name, weights.sharding
    weights.shapes[name] = parameter.shape
    held = packed_4bit(t, parameter.shape) if whole is None else whole.quantised[name]
    as_bytes = weights.run.loading.packed_as_bytes or parameter.kind == "experts"
    if bits_of(weights.run, parameter) == "8bit" or (as_bytes and _fsdp(weights).version == 2):
        weights.quantised[name] = [*held]
        return
    weights.packed_bytes[name] = packed = held[0].nbytes
    share = [] if sharding.host_weights else [Storage(t, sharding.share(packed, of=True))]
    weights.quantised[name] = [*held[1:], *share]
