"""bitsandbytes' optimizers: states in 8 bits with a scale for 256 elements, or in 32 bits; paged ones outside the
allocator.

Parameters under 4096 elements keep fp32 states, and so do embeddings, for which transformers registers an override.
Paged states of 100,000 elements and more live in unified memory, which this allocator never sees.
"""

from __future__ import annotations

from vramwise.ghost.optimizers.base import Kind, StatesOnly, Trained
from vramwise.ghost.tape import Parameter, Storage, Tape

_BLOCK = 256
_MAP_BYTES = 256 * 4
_MIN_8BIT = 4096
_MIN_PAGED = 100_000


class BitsAndBytes(StatesOnly):
    """Adam (two states), Lion and the like (one), AdEMAMix (three), parameter by parameter."""

    def __init__(self, parameters: list[Parameter], *, states: int, bits: int, paged: bool) -> None:
        super().__init__(parameters)
        self.count = states
        self.bits = bits
        self.paged = paged

    def make(self, t: Tape, parameter: Parameter) -> list[Storage]:
        """Return a parameter's states; large ones that are paged are not on the card."""
        wide = self.bits == 32 or parameter.local < _MIN_8BIT or is_embedding(parameter)
        width = 4 if wide else 1
        if not wide and "optimizer map 0" not in t.once:
            for number in range(min(self.count, 2)):
                t.once[f"optimizer map {number}"] = Storage(t, _MAP_BYTES)
        on_device = not self.paged or parameter.local < _MIN_PAGED
        made = [Storage(t, parameter.local * width) for _ in range(self.count)] if on_device else []
        if not wide:
            made += [Storage(t, -(-parameter.local // _BLOCK) * 4) for _ in range(self.count)]
        return made


def is_embedding(parameter: Parameter) -> bool:
    """Return a token or position table, by transformers' names."""
    return any(part in parameter.name for part in ("embed_tokens", "embed_in", "word_embeddings", ".wte", ".wpe"))


_FAMILIES = ("adamw", "lion", "ademamix", "rmsprop", "adagrad", "sgd")


def _handles(name: str) -> bool:
    return name.startswith((*_FAMILIES, "paged_")) and any(part in name for part in ("bnb", "8bit", "32bit", "paged"))


def _make(name: str, trained: Trained) -> BitsAndBytes:
    one = any(part in name for part in ("lion", "rmsprop", "adagrad", "sgd"))
    states = 3 if "ademamix" in name else 1 if one else 2
    bits = 8 if "8bit" in name else 32
    return BitsAndBytes(trained.ordered, states=states, bits=bits, paged=name.startswith("paged"))


OPTIMIZERS = (Kind(handles=_handles, make=_make),)
