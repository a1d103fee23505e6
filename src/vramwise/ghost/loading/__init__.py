"""Loading: the weights come to the card, some are cast to and fro, the base is quantised, adapters are added.

`load` follows the order of a trainer's loader: read the weights (`reading`), cast what the trainer casts (`casts`),
add the adapters (`adapters`), hand the cache back. What the steps find in the allocator's cache is what this leaves.

Unsloth moves embeddings off the card once weights are there: lookups run on the host, and only their rows come back.
After `offload_embedding_if_tight` of Unsloth 2026.10 and `estimate_training_reserve_bytes` of unsloth_zoo, which judge
the free memory when the weights are read, and again when adapters are added.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.loading.adapters import add_adapters
from vramwise.ghost.loading.casts import cast_for_training, widen_trained
from vramwise.ghost.loading.reading import move_to_device, read_weights, stays_on_host
from vramwise.ghost.loading.spreading import spread
from vramwise.ghost.ops.fused_layers import tables_of_layers
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Tape
from vramwise.ghost.weights import Weights
from vramwise.models.parameters import parameters
from vramwise.timeline import Action
from vramwise.types import ModelSpec, RunSpec
from vramwise.units import gib

_MIB = 1024**2
_BYTES_A_TOKEN_AND_WIDTH = 48
_LOGIT_ROWS = 2048
_SAFETY_BYTES = 256 * _MIB
# Gradients are of the parameter's type; beside them two moments and a temporary of the optimizer, in fp32.
_STATE_BYTES = 12
# Tables beside the tokens' go if they are this large.
_LEAST_BYTES = 256 * _MIB
_SIGNS = {int(Action.ALLOC): 1, int(Action.FREE): -1}


def embeddings_leave(t: Tape, weights: Weights, *, adapters: bool) -> None:
    """Move embeddings to host memory if the run does, and the card has too little left. `adapters`: they are there."""
    tokens = weights.run.loading.embedding_leaves_below
    leaving = _leaving(weights) if tokens is not None else []
    if not leaving or (tokens and _enough(t, weights, tokens, adapters=adapters)):
        return
    freed = 0
    for name in leaving:
        storage = weights.by_name[name].storage
        freed += 0 if storage is None else storage.nbytes
        weights.by_name[name].storage = None
    t.empty_cache()
    weights.said.append(
        f"Unsloth moves the input embedding to host memory, which saves {gib(freed)}"
        + (": the card has little room beside the weights" if tokens else "")
    )


def _leaving(weights: Weights) -> list[str]:
    """Return the names of the embeddings that are on the card, have no trained copy, and that no head shares."""
    found = [parameter for parameter in parameters(weights.model) if parameter.kind == "embedding"]
    main = found[0].name if found else ""
    names = []
    for parameter in found:
        made = weights.by_name.get(parameter.name)
        if made is None or made.storage is None or made.node is not None:
            continue
        shared = parameter.name == main and weights.model.tie_word_embeddings
        if not shared and (parameter.name == main or made.storage.nbytes >= _LEAST_BYTES):
            names.append(parameter.name)
    saved = weights.run.adapter.lora_modules_to_save
    return [name for name in names if not any(name.removesuffix(".weight").endswith(one) for one in saved)]


def _enough(t: Tape, weights: Weights, tokens: int, *, adapters: bool) -> bool:
    """Return whether more is free than the estimate of what a step needs."""
    capacity, model = t.hardware.capacity_bytes, weights.model
    if capacity is None:
        return True
    held = sum([_SIGNS.get(event[0], 0) * event[2] for event in t.events])
    needed = tokens * model.hidden_size * _BYTES_A_TOKEN_AND_WIDTH + min(tokens, _LOGIT_ROWS) * model.vocab_size * 4
    if adapters:
        needed += sum(one.numel * (one.dtype.size + _STATE_BYTES) for one in weights.trainable())
    return capacity - held >= needed + needed // 16 + _SAFETY_BYTES


__all__ = ["load", "load_reference"]

# TRL's trainers for these wrap the model themselves, when the loader has finished and emptied the cache.
_WRAPPED_BY_THE_TRAINER = ("dpo", "ipo", "kto")


def load(t: Tape, model: ModelSpec, run: RunSpec, sharding: Sharding) -> Weights:
    """Return the weights of the model that is trained, its adapters included; the cache is handed back at the end."""
    run = _as_partitioned(run, sharding)
    if run.loading.multiplies_first:
        t.workspace()
    if run.savings.layer_offloading and run.loading.loads_through == "device":
        # layers leave the card when the whole model has been on it
        _load_onto_card(t, Weights(model, run, replace(sharding, host_weights=False)))
        t.empty_cache()
        run = run.changed(resets_load_peaks=False)
    weights = Weights(model, run, sharding)
    if run.kernels.tables_each_layer and model.model_type in run.kernels.fused_layers:
        width, dtype = int(model.head_dim * model.rotary_fraction), BY_NAME[run.precision.weights_dtype]
        tables_of_layers(t, model.num_hidden_layers, model.max_position_embeddings, width, dtype)
    if sharding.fsdp is not None:
        _spread(t, weights, trainable=run.adapter.kind is None)
        return weights
    if run.loading.loads_through == "host" and not stays_on_host(sharding):
        move_to_device(t, weights)
    else:
        _load_onto_card(t, weights)
    t.empty_cache()
    return weights


def _as_partitioned(run: RunSpec, sharding: Sharding) -> RunSpec:
    """The run with its weights in the type that ZeRO 3 cuts them in: the engine's, whatever type they are loaded in."""
    zero = sharding.zero
    if zero is None or zero.stage < 3 or run.precision.compute not in ("bf16", "fp16"):
        return run
    if run.precision.weights_dtype != "fp32" or run.loading.quantization is not None:
        return run
    return run.changed(weights_dtype=run.precision.compute, fp32_embeddings=False)


def _spread(t: Tape, weights: Weights, *, trainable: bool) -> None:
    """Shards of a model that is in host memory, or whole on the card; what was cached by then is handed back."""
    whole = None
    if weights.run.loading.loads_through == "device":
        whole = Weights(weights.model, weights.run, Sharding())
        _load_onto_card(t, whole)
        if weights.run.loading.trains_in_fp32:
            widen_trained(t, whole)
        t.empty_cache()
    spread(t, weights, whole, trainable=trainable)


def load_reference(t: Tape, model: ModelSpec, run: RunSpec, sharding: Sharding) -> Weights:
    """Return a second model beside the trained one: read and cast in the same way, without adapters.

    Nobody marks it as frozen, though no gradient is ever made: autocast keeps copies of its weights as of any others
    that could be trained. What is sharded is cast by other hands.
    """
    weights = Weights(model, run, sharding)
    if sharding.fsdp is not None:
        _spread(t, weights, trainable=False)
        return weights
    _load_base(t, weights, trainable=sharding.zero is None)
    t.empty_cache()
    return weights


def _load_onto_card(t: Tape, weights: Weights) -> None:
    run = weights.run
    _load_base(t, weights, trainable=run.adapter.kind is None)
    if run.adapter.kind is None:
        return
    embeddings_leave(t, weights, adapters=False)
    late = run.objective.rl in _WRAPPED_BY_THE_TRAINER
    if not late:
        add_adapters(t, weights)
    if run.loading.resets_load_peaks:
        t.reset_peaks()
    if late:
        t.empty_cache()
        add_adapters(t, weights)
    embeddings_leave(t, weights, adapters=True)


def _load_base(t: Tape, weights: Weights, *, trainable: bool) -> None:
    read_weights(t, weights, trainable=trainable)
    cast_for_training(t, weights)
    if weights.run.loading.resets_load_peaks:
        t.reset_peaks()
