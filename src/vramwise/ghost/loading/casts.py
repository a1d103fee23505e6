"""Casts after reading: what a trainer takes to fp32, PEFT's preparation of a quantised base, and the way back.

Each weight is copied to its new type before the old copy goes: untied embeddings and head, at fp32, are the transient
that decides the peak of loading a model with a large vocabulary.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from vramwise.ghost.dtypes import BY_NAME, FP32, DType
from vramwise.ghost.tape import Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.models.parameters import parameters

# What trainers cast back, or leave in fp32, together.
KEPT_TOGETHER = frozenset({"norm", "embedding", "lm_head"})
_EMBEDDINGS = ("embedding", "lm_head")


def cast_for_training(t: Tape, weights: Weights) -> None:
    """Cast as the trainer does, prepare as PEFT does, and cast back unless norms and embeddings stay in fp32."""
    run = weights.run
    if run.loading.copies_to_half:
        _copy_to_half(t, weights)
    raised = {*run.loading.upcasts_at_load}
    recast(t, weights, FP32, raised)
    if (
        run.loading.quantization is not None
        and run.adapter.kind is not None
        and run.loading.quantised_base_prepared != "no"
    ):
        raised |= _prepare_quantised(t, weights)
    if run.precision.fp32_embeddings:
        recast(t, weights, FP32, KEPT_TOGETHER)
    elif not run.loading.upcasts_stay:
        recast(t, weights, BY_NAME[run.precision.weights_dtype], KEPT_TOGETHER & raised)


def _copy_to_half(t: Tape, weights: Weights) -> None:
    """Weights that are not quantised, from one 16-bit type to the other; the cache is emptied after each."""
    for name, parameter in weights.by_name.items():
        if parameter.storage is not None:
            t.mark("weights", name)
            parameter.storage = Storage(t, parameter.storage.nbytes)
            t.empty_cache()


def widen_trained(t: Tape, weights: Weights) -> None:
    """Cast all that is trained to fp32, one by one; engines that spread weights keep copies of their own."""
    if weights.sharding.fsdp is not None or weights.sharding.zero is not None:
        return
    for parameter in weights.trainable():
        if parameter.dtype is FP32 or parameter.storage is None:
            continue
        t.mark("weights", parameter.name)
        parameter.storage = Storage(t, parameter.storage.nbytes // parameter.dtype.size * FP32.size)
        parameter.dtype = parameter.state_dtype = FP32
    t.empty_cache()


def _prepare_quantised(t: Tape, weights: Weights) -> set[str]:
    """PEFT casts all that is not quantised to fp32; experts' weights, routers and the rest stay so. Returns the kinds.

    Biases of quantised layers go back to the input's type at their first use and are left out.
    """
    spared = _EMBEDDINGS if weights.run.loading.quantised_base_prepared == "but embeddings" else ()
    kinds = {str(parameter.kind) for parameter in parameters(weights.model)} - {"bias", *spared}
    recast(t, weights, FP32, kinds)
    t.empty_cache()
    return kinds


def recast(t: Tape, weights: Weights, dtype: DType, kinds: AbstractSet[str]) -> None:
    """These kinds of weights to another type, one after the other in the model's order."""
    if not kinds:
        return
    for name, _shape, kind, _layer in parameters(weights.model):
        parameter = weights.by_name.get(name) if kind in kinds else None
        if parameter is None:
            continue
        sharded = weights.sharding.fsdp is not None
        before = parameter.state_dtype if sharded else parameter.dtype
        if before is dtype:
            continue
        t.mark("weights", name)
        held = parameter.storage
        if held is not None:
            parameter.storage = Storage(t, held.nbytes // before.size * dtype.size)
        del held
        parameter.state_dtype = dtype
        if not sharded:
            parameter.dtype = dtype
