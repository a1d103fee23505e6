"""Reads a `config.json` field by field and checks types. Every error names the field and the file.

Handles the conventions of such files: null for "not set", and older names beside newer ones.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError

# Larger than any real value by orders of magnitude. Protects against hostile files.
_LARGEST = 2**31
MANY = 4096

# Other names of fields, by which configs of types that no family lists are read, too; the first that is set counts.
_OTHER_NAMES = {
    "hidden_size": ("n_embd", "n_embed", "d_model", "model_dim", "embed_dim", "hidden_dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "decoder_attention_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_kv_heads", "n_head_kv", "n_kv_head"),
    "intermediate_size": ("ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "d_inner", "mlp_dim", "decoder_ffn_dim"),
    "vocab_size": ("n_vocab", "padded_vocab_size", "vocabulary_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "max_seq_length", "seq_length", "n_ctx"),
}


class Fields:
    """The fields of one config.json, with transformers' defaults for missing fields."""

    __slots__ = ("_defaults", "_values", "source")

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any], source: str) -> None:
        self._values = values
        self._defaults = defaults
        self.source = source

    def get(self, *names: str) -> Any:
        """Return the value of the first of these names in the file, else the first default, else None.

        A null in the file gives None: transformers does not replace it by the default.
        """
        for name in names:
            if name in self._values:
                return self._values[name]
        for name in names:
            if name in self._defaults:
                return self._defaults[name]
        return None

    def wrong(self, name: str, what: str) -> VramwiseError:
        """Return the error for a field that cannot be used."""
        return VramwiseError(f"{self.source}: '{name}' {what}")

    def optional_integer(self, *names: str, most: int = _LARGEST) -> int | None:
        """Return a positive integer, or None if the field is missing. Raises VramwiseError for anything else."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(names[0], f"must be a whole number, not {_shown(value)}")
        if not 0 < value <= most:
            raise self.wrong(names[0], f"must be between 1 and {most}, not {_shown(value)}")
        return value

    def integer(self, *names: str, most: int = _LARGEST) -> int:
        """Return a positive integer. Raises VramwiseError if it is missing or invalid."""
        value = self.optional_integer(*names, most=most)
        if value is None:
            raise self.wrong(names[0], "is missing")
        return value

    def count(self, *names: str) -> int:
        """Return a non-negative integer, or 0 if the field is missing."""
        return 0 if self.get(*names) in (None, 0) else self.integer(*names)

    def optional_number(self, *names: str) -> float | None:
        """Return a number, or None if the field is missing. Raises VramwiseError for anything else."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(names[0], f"must be a number, not {_shown(value)}")
        # NaN and infinities are not valid JSON, but Python reads them.
        if not -_LARGEST <= value <= _LARGEST:
            raise self.wrong(names[0], f"must be a number of a usable size, not {_shown(value)}")
        return float(value)

    def fraction(self, *names: str) -> float:
        """Return a number from 0 to 1, such as a dropout rate, or 0 if the field is missing."""
        value = self.optional_number(*names) or 0.0
        if not 0 <= value <= 1:
            raise self.wrong(names[0], f"must be between 0 and 1, not {_shown(value)}")
        return value

    def flag(self, *names: str) -> bool:
        """Return a boolean, or False if the field is missing."""
        value = self.get(*names)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong(names[0], f"must be true or false, not {_shown(value)}")
        return value

    def text(self, *names: str) -> str | None:
        """Return a string, or None if the field is missing."""
        value = self.get(*names)
        if value is not None and not isinstance(value, str):
            raise self.wrong(names[0], f"must be a string, not {_shown(value)}")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a tuple of integers, empty if the field is missing."""
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
            raise self.wrong(name, f"must be a list of whole numbers, not {_shown(value)}")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return a tuple of strings, or None if the field is missing."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, f"must be a list of strings, not {_shown(value)}")
        return tuple(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a mapping, empty if the field is missing."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, f"must be a mapping, not {_shown(value)}")
        return value


def usual_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that a config of an unknown type states under other names."""
    found = {
        usual: next((values[other] for other in others if values.get(other) is not None), None)
        for usual, others in _OTHER_NAMES.items()
        if values.get(usual) is None
    }
    hidden = found.get("hidden_size")
    if "intermediate_size" in found and found["intermediate_size"] is None and isinstance(hidden, int):
        found["intermediate_size"] = 4 * hidden  # configs with GPT-2's names leave it out
    return {usual: value for usual, value in found.items() if value is not None}


def _shown(value: object) -> str:
    try:
        text = reprlib.repr(value)
    except ValueError:  # Python refuses to print numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:37]}…"
