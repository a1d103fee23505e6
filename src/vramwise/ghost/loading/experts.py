"""Experts' matrices, one tensor each in the checkpoint, become one 3-D weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from vramwise.ghost.dtypes import DType
from vramwise.ghost.tape import Storage, Tape
from vramwise.models.families.parts import Parameter as Described

# for each weight: one list of matrices, or two (gate and up)
Matrices = dict[str, list[list[Storage]]]


def read_experts(t: Tape, weight: Described, dtype: DType) -> Matrices:
    """Read the matrices of one weight: all gates, then all ups."""
    count = weight.shape[0]
    each = _bytes(weight, dtype) // _sources(weight) // count
    return {weight.name: [[Storage(t, each) for _ in range(count)] for _ in range(_sources(weight))]}


def read_layer(t: Tape, weights: Sequence[Described], dtype: DType) -> Matrices:
    """Read the matrices of all weights of a layer as they lie in the checkpoint: expert by expert.

    The last expert's are left to `read_last`, but for the first weight: it is merged as soon as its own are there.
    """
    found: Matrices = {weight.name: [[] for _ in range(_sources(weight))] for weight in weights}
    for _expert in range(weights[0].shape[0] - 1):
        _read_expert(t, weights, found, dtype)
    _read_expert(t, weights[:1], found, dtype)
    return found


def read_last(t: Tape, weights: Sequence[Described], found: Matrices, dtype: DType) -> None:
    """Read what `read_layer` left."""
    _read_expert(t, weights[1:], found, dtype)


def _read_expert(t: Tape, weights: Sequence[Described], found: Matrices, dtype: DType) -> None:
    for weight in weights:
        for matrices in found[weight.name]:
            matrices.append(Storage(t, _bytes(weight, dtype) // _sources(weight) // weight.shape[0]))


def merge_experts(
    t: Tape, weight: Described, lists: list[list[Storage]], dtype: DType, meanwhile: Callable[[], None] | None = None
) -> Storage:
    """Stack the matrices; gate and up are stacked apart and then laid side by side.

    Each list of matrices goes when the next one is taken up, from its last to its first, both stacks when their union
    is there. `meanwhile`: brings what is read while the first list is stacked.
    """
    nbytes = _bytes(weight, dtype)
    sources = len(lists)
    stacks: list[Storage] = []
    while lists:
        matrices = lists.pop(0)
        stacks.append(Storage(t, nbytes // sources))
        if meanwhile is not None:
            meanwhile()
            meanwhile = None
        while matrices:
            matrices.pop()
    return stacks.pop() if sources == 1 else Storage(t, nbytes)


def _bytes(weight: Described, dtype: DType) -> int:
    return prod(weight.shape) * dtype.size


def _sources(weight: Described) -> int:
    return 2 if weight.name.endswith("gate_up_proj") else 1
