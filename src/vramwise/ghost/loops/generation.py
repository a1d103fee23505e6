"""Generation by the policy itself: a pass over the prompts, which creates the key-value cache, then token by token.

Each token appends its keys and values to the cache: a new tensor per layer replaces the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.model.causal_lm import Block
from vramwise.ghost.tape import Tape, Tensor
from vramwise.types import ModelSpec

# How many lengths of the growing cache are simulated: one per token for short completions.
_MOST_LENGTHS = 64
# Vocabulary-sized tensors that sampling holds at once: scores, processed scores, probabilities.
_SAMPLING_COPIES = 3


@dataclass(slots=True)
class Cache:
    """Keys and values of each layer."""

    rows: int
    model: ModelSpec
    dtype: DType
    layers: list[tuple[Tensor, Tensor]]

    def tensor(self, t: Tape, tokens: int) -> Tensor:
        """Allocate the keys, or values, of one layer."""
        t.mark("activations", "keys and values of what is generated")
        return t.new((self.rows, self.model.num_key_value_heads, tokens, self.model.head_dim), self.dtype)

    def grow(self, t: Tape, tokens: int) -> None:
        """Replace the keys and values of all layers with ones of this length."""
        for number in range(len(self.layers)):
            keys = self.tensor(t, tokens)
            values = self.tensor(t, tokens)
            self.layers[number] = keys, values
            del keys, values


@dataclass(frozen=True, slots=True)
class _Caching:
    """A block that stores its keys and values in the cache."""

    block: Block
    cache: Cache
    tokens: int

    def __call__(self, t: Tape, hidden: Tensor, **arguments: object) -> Tensor:
        """Run the block and append its keys and values."""
        out = self.block(t, hidden, **arguments)
        self.cache.layers.append((self.cache.tensor(t, self.tokens), self.cache.tensor(t, self.tokens)))
        return out


def prefill(t: Tape, model: Model, cache: Cache, ids: Tensor, mask: Tensor, padded: bool) -> None:
    """Run the pass over the prompts."""
    body = model.body
    plain = list(body.blocks)
    body.blocks[:] = [_Caching(block, cache, ids.shape[1]) for block in plain]
    body(t, ids, mask, padded)
    body.blocks[:] = plain


def decode(t: Tape, cache: Cache, prompt: int, completion: int) -> None:
    """Generate token by token; for long completions, only some lengths are simulated."""
    step = max(1, -(-completion // _MOST_LENGTHS))
    for length in [*range(1, completion, step), completion]:
        cache.grow(t, prompt + length)
        t.mark("logits", "sampling")
        held = [t.new((cache.rows, cache.model.vocab_size), FP32) for _ in range(_SAMPLING_COPIES)]
        del held
