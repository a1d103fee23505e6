"""Partly frozen models: of all parameters only those whose names match are trained."""

from __future__ import annotations

from vramwise.errors import VramwiseError
from vramwise.ghost.tape import Parameter
from vramwise.ghost.weights import Weights
from vramwise.models.patterns import pattern_of
from vramwise.types import TrainedBlocks

# Each is matched with the name of every parameter.
_MOST_PATTERNS = 1_000


def freeze_except(weights: Weights, patterns: tuple[str, ...]) -> None:
    """Take the gradient from every parameter whose name none of the regular expressions matches from its start.

    A frozen one stays in the type it was loaded in; adapters are named as PEFT names them.
    """
    if len(patterns) > _MOST_PATTERNS:
        raise VramwiseError(
            f"parameters to train: at most {_MOST_PATTERNS:,} expressions are supported, not {len(patterns):,}"
        )
    wanted = [pattern_of(pattern, "parameters to train") for pattern in patterns]
    for name, parameter in _named(weights):
        if not any(pattern.match(name) for pattern in wanted):
            parameter.node = None
        elif parameter.node is None:
            parameter.require_grad()


def freeze_blocks(weights: Weights, blocks: TrainedBlocks) -> None:
    """Take the gradient from every parameter outside of these blocks, and of the modules that are named."""
    parts = [f".{number}." for number in blocks.numbers(weights.model.num_hidden_layers)]
    wanted = [part + module for part in parts for module in blocks.modules or ("",)]
    for name, parameter in weights.by_name.items():
        if not any(part in name for part in (*wanted, *blocks.others)):
            parameter.node = None


def _named(weights: Weights) -> list[tuple[str, Parameter]]:
    """Parameters under the names they have once the model is wrapped."""
    if not weights.adapters:
        return list(weights.by_name.items())
    start, found = "base_model.model.", []
    for name, parameter in weights.by_name.items():
        module, _, last = name.rpartition(".")
        inside = f"{module}.base_layer.{last}" if module in weights.adapters else name
        found.append((f"{start}{inside}", parameter))
    for module, pair in weights.adapters.items():
        found += [
            (f"{start}{module}.lora_{letter}.default.weight", one) for letter, one in zip("AB", pair, strict=True)
        ]
    for module, magnitude in weights.magnitudes.items():
        found.append((f"{start}{module}.lora_magnitude_vector.default.weight", magnitude))
    return found
