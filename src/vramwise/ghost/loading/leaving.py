"""Embeddings that leave the card once weights are there: lookups run on the host, and only their rows come back.

After `offload_embedding_if_tight` of Unsloth 2026.10 and `estimate_training_reserve_bytes` of unsloth_zoo, which judge
the free memory when the weights are read, and again when adapters are added.
"""

from __future__ import annotations

from vramwise.ghost.tape import Tape
from vramwise.ghost.weights import Weights
from vramwise.models.parameters import parameters
from vramwise.timeline import Action
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
