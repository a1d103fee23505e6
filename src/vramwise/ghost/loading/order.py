"""In which order a checkpoint's tensors are read, and which of them are parts of one weight.

transformers sorts a checkpoint's names, numbers by their value, before it reads them. Checkpoints of most mixtures hold
each expert's matrices apart; they become one 3-D weight while loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from vramwise.facts.parameters import parameters
from vramwise.families.parts import Parameter
from vramwise.types import ModelSpec
from vramwise.units import whole_number

# Their checkpoints hold the experts' 3-D weights as they are.
_STORED_AS_ONE = ("gpt_oss", "llama4")


@lru_cache(maxsize=64)
def checkpoint_order(model: ModelSpec) -> Sequence[Parameter]:
    """The model's parameters as they are read: by their names, numbers in them by value."""
    return tuple(sorted(parameters(model), key=lambda parameter: _natural(parameter.name)))


def is_merged(model: ModelSpec, parameter: Parameter) -> bool:
    """Whether the weight is put together from one tensor an expert."""
    return len(parameter.shape) == 3 and parameter.kind == "experts" and model.family not in _STORED_AS_ONE


def _natural(name: str) -> list[tuple[int, int | str]]:
    numbers = ((part, whole_number(part)) for part in name.split("."))
    return [(1, part) if number is None else (0, number) for part, number in numbers]
