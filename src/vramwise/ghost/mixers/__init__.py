"""What a block may have in place of attention: latent attention, delta rules, state spaces, short convolutions.

Each file builds one kind from the weights under a block's name and runs it as an attention layer runs: hidden states
in, hidden states out. `of_kind` finds the one that a family's word means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from vramwise.ghost.model.attention import AttentionLayer
from vramwise.ghost.model.kernels import Kernel
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.model.rotary import Rotation
from vramwise.ghost.tape import Parameter
from vramwise.models.families.base import Mixer
from vramwise.types import ModelSpec

# Module and function, imported only when a block has one.
_MAKERS: dict[Mixer, str] = {
    "latent": "latent.latent_attention",
    "delta rule": "delta_rule.delta_rule",
    "gated": "gated.gated_attention",
    "conv": "convolution.short_convolution",
    "state space": "state_space.state_space",
    "attention and state space": "state_space.beside_state_space",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a mixer is made of, and how attention is done in this run.

    Layers by their names within the block. `norm` and `weight` give None where the block has none.
    """

    model: ModelSpec
    linear: Callable[[str], Projection]
    weight: Callable[[str], Parameter | None]
    norm: Callable[[str], Norm | None]
    has: Callable[[str], bool]
    rows: Callable[[str], int]  # of a linear layer's weight
    kernel: Kernel
    rotate: Rotation | None
    attention: Callable[[], AttentionLayer]
    # whether kernels of their own run delta rules and state spaces; else transformers' torch code does
    fused: bool


def of_kind(word: Mixer, parts: Parts) -> AttentionLayer:
    """Return the layer that the word means, of these parts."""
    module, _, name = _MAKERS[word].partition(".")
    made: AttentionLayer = getattr(import_module(f"{__name__}.{module}"), name)(parts)
    return made
