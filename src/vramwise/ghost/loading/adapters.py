"""Adapters as PEFT adds them: made in the base weights' type beside their modules, then copied to fp32 where that is
another."""

from __future__ import annotations

from math import prod

from vramwise.ghost.dtypes import BY_NAME, FP32, DType
from vramwise.ghost.loading.parameter import fsdp_parameter, new_parameter
from vramwise.ghost.model.linear import rotation_shape
from vramwise.ghost.ops.quantised import scales
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.models.families import layout_of
from vramwise.models.lora_targets import LoraTarget, lora_targets, wanted_targets
from vramwise.types import RunSpec

Planned = dict[str, LoraTarget]


def add_adapters(t: Tape, weights: Weights) -> None:
    """Around a base that is on the card: all matrices in the base's type first, then one after the other to fp32."""
    run = weights.run
    base, kept = BY_NAME[run.precision.weights_dtype], adapter_dtype(run)
    targets = list(planned_adapters(weights).values())
    first: list[Parameter] = []
    for target in targets:
        for letter, shape in _matrices(weights, target):
            name = f"{target.name}.lora_{letter}"
            t.mark("weights", name)
            if letter == "magnitude":
                _weight_norm(t, target, base, weights.run.loading.quantization)
            if base is kept:  # nothing is left to cast
                first.append(new_parameter(t, weights, name, shape, kept, trainable=True))
            else:
                first.append(Parameter(t, name, shape, base, trainable=False))
    for position in range(len(first) if base is not kept else 0):
        made = first[position]
        t.mark("weights", made.name)
        wide = new_parameter(t, weights, made.name, made.shape, kept, trainable=True)
        del made
        first[position] = wide
        del wide
    _tie_saved_head(weights)
    for name in [*weights.by_name]:
        copy_saved(t, weights, name)
    each = 1 if run.adapter.kind == "oft" else 3 if run.adapter.use_dora else 2
    for position, target in enumerate(targets):
        _keep(weights, target, first[position * each : (position + 1) * each])


def adapter_dtype(run: RunSpec) -> DType:
    """Return what the matrices are trained in."""
    return BY_NAME[run.precision.weights_dtype] if run.adapter.adapters_as_base else FP32


def planned_adapters(weights: Weights) -> Planned:
    """Return the modules that get an adapter, by name, in the model's order."""
    run = weights.run
    if run.adapter.kind is None:
        return {}
    wanted = wanted_targets(run, weights.model)
    return {target.name: target for target in lora_targets(weights.model, wanted, run.adapter.lora_target_parameters)}


def adapter_beside(t: Tape, weights: Weights, name: str, planned: Planned) -> None:
    """Add the adapter of the module whose last parameter this is, moved with it: in its last type already."""
    target = planned.pop(name, None) or planned.pop(name.removesuffix(".weight"), None)
    if target is None:
        return
    group = []
    for letter, shape in _matrices(weights, target):
        matrix = f"{target.name}.lora_{letter}"
        t.mark("weights", matrix)
        group.append(new_parameter(t, weights, matrix, shape, adapter_dtype(weights.run), trainable=True))
    _keep(weights, target, group)


def adapter_numel(weights: Weights, name: str, planned: Planned) -> list[int]:
    """Return the elements of each matrix of the adapter that `adapter_beside` would add here."""
    target = planned.get(name) or planned.get(name.removesuffix(".weight"))
    return [] if target is None else [prod(shape) for _, shape in _matrices(weights, target)]


def copy_saved(t: Tape, weights: Weights, name: str) -> None:
    """PEFT's modules_to_save: a trainable copy, in the type of the original, which stays where it is."""
    wanted = weights.run.adapter.lora_modules_to_save
    if not wanted or not name.removesuffix(".weight").removesuffix(".bias").endswith(wanted):
        return
    original = weights.by_name[name]
    t.mark("weights", name)
    weights.replaced.append(original)
    if weights.sharding.fsdp is None:
        weights.by_name[name] = Parameter(t, name, original.shape, original.dtype, trainable=True)
    else:
        weights.by_name[name] = fsdp_parameter(t, weights, name, original.shape, original.state_dtype, trainable=True)


def _tie_saved_head(weights: Weights) -> None:
    """A tied head has no weight of its own: copied, it gets one, and copying the embeddings leaves the head with the
    original. Both copied by a trainer that ties the copies: the head goes on using the embeddings'."""
    adapter = weights.run.adapter
    if not adapter.lora_modules_to_save or not weights.model.tie_word_embeddings:
        return
    layout = layout_of(weights.model)
    embedding = f"{layout.inside(weights.model, layout.embedding)}.weight"
    both = ("lm_head", embedding.split(".")[-2])
    if adapter.saved_pair_tied and all(name in adapter.lora_modules_to_save for name in both):
        return
    weights.by_name["lm_head.weight"] = weights.by_name[embedding]


def _matrices(weights: Weights, target: LoraTarget) -> list[tuple[str, tuple[int, ...]]]:
    run = weights.run
    assert run.adapter.lora_r is not None
    if run.adapter.kind == "oft":
        return [("R", rotation_shape(target.in_features, run.adapter.lora_r))]
    rank = run.adapter.lora_r * target.rank_factor * target.experts
    shapes: list[tuple[str, tuple[int, ...]]] = [("A", (rank, target.in_features)), ("B", (target.out_features, rank))]
    if run.adapter.use_dora:
        shapes.append(("magnitude", (target.out_features,)))
    return shapes


def _keep(weights: Weights, target: LoraTarget, group: list[Parameter]) -> None:
    weights.targets[target.name] = target
    if weights.run.adapter.kind == "oft":
        weights.rotations[target.name] = group[0]
        return
    weights.adapters[target.name] = (group[0], group[1])
    if weights.run.adapter.use_dora:
        weights.magnitudes[target.name] = group[2]


def _weight_norm(t: Tape, target: LoraTarget, base: DType, quantization: str | None) -> None:
    """Compute the first magnitudes: norms of the merged weight, dequantised first (of 4 bits, from a copy)."""
    numel = target.in_features * target.out_features
    nbytes = numel * base.size
    copied = [Storage(t, -(-numel // 2)), Storage(t, scales(numel))] if quantization == "4bit" else []
    copied += [Storage(t, nbytes)] if quantization is not None else []
    merged = Storage(t, nbytes)
    t.workspace()
    scaled = Storage(t, nbytes)
    summed = Storage(t, nbytes)
    del scaled
    del merged, summed, copied
