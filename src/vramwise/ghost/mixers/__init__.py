"""What a block may have in place of attention: latent attention, delta rules, state spaces, short convolutions.

Each file builds one kind from the weights under a block's name and runs it as an attention layer runs: hidden states
in, hidden states out. `of_kind` finds the one that a family's word means.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vramwise.families.base import Mixer

if TYPE_CHECKING:
    from vramwise.ghost.mixers.parts import Parts
    from vramwise.ghost.model.attention import AttentionLayer

# Module and function, imported only when a block has one.
_MAKERS: dict[Mixer, str] = {
    "latent": "latent.latent_attention",
    "delta rule": "delta_rule.delta_rule",
    "gated": "gated.gated_attention",
    "conv": "convolution.short_convolution",
    "state space": "state_space.state_space",
    "attention and state space": "state_space.beside_state_space",
}


def of_kind(word: Mixer, parts: Parts) -> AttentionLayer:
    """The layer that the word means, of these parts."""
    module, _, name = _MAKERS[word].partition(".")
    made: AttentionLayer = getattr(import_module(f"{__name__}.{module}"), name)(parts)
    return made
