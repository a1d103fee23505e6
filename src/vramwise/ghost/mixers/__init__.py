"""What a block may have in place of attention: latent attention, delta rules, state spaces, short convolutions.

Each file builds one kind from the weights under a block's name and runs it as an attention layer runs: hidden states
in, hidden states out. `of_kind` finds the one that a family's word means.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.families.base import Mixer
from vramwise.ghost.mixers.convolution import short_convolution
from vramwise.ghost.mixers.delta_rule import delta_rule
from vramwise.ghost.mixers.gated import gated_attention
from vramwise.ghost.mixers.latent import latent_attention
from vramwise.ghost.mixers.parts import Parts
from vramwise.ghost.mixers.state_space import beside_state_space, state_space
from vramwise.ghost.model.attention import AttentionLayer

Maker = Callable[[Parts], AttentionLayer]

_MAKERS: dict[Mixer, Maker] = {
    "latent": latent_attention,
    "delta rule": delta_rule,
    "gated": gated_attention,
    "conv": short_convolution,
    "state space": state_space,
    "attention and state space": beside_state_space,
}


def of_kind(word: Mixer, parts: Parts) -> AttentionLayer:
    """The layer that the word means, of these parts."""
    return _MAKERS[word](parts)
