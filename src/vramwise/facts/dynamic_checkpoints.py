"""4-bit checkpoints of Unsloth that keep some layers in 16 bits ("dynamic"), and how much more memory they take."""

from __future__ import annotations

# The end of their names.
_ENDING = "-unsloth-bnb-4bit"
# Checkpoints whose 16-bit layers take much more memory, as measured: 11.9 GiB against 9.9 for Qwen3-14B, 19.1 against
# 15.6 for Gemma 3 27B. Llama 3.3 70B took 4 % more.
_WIDE = ("qwen3", "gemma-3")
# The largest excess over the weights in 4 bits: a fifth of them in two notebooks.
MORE_WEIGHTS = 0.25


def is_wide(checkpoint: object) -> bool:
    """Return whether a checkpoint of this name has 16-bit layers that take much more memory than 4-bit ones."""
    name = str(checkpoint or "").lower()
    return name.endswith(_ENDING) and any(word in name for word in _WIDE)
