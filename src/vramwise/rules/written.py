"""How a file says what decided a setting, for messages of rules that hold for every trainer."""

from __future__ import annotations

from vramwise.types import RunSpec


def as_written(run: RunSpec, field: str) -> str | None:
    """`key: value` as the file has it; None where no key of the file decided the setting, or a whole block did."""
    key = run.origins[field].key
    value = None if key is None else run.config.get(key)
    if isinstance(value, bool):
        return f"{key}: {str(value).lower()}"
    return f"{key}: {value}" if isinstance(value, str | int | float) else None
