"""A card as plain values, for `gpus --format json` and for agents."""

from __future__ import annotations

from typing import Any

from vramwise.types import GpuSpec


def gpu_json(card: GpuSpec, usable_bytes: int) -> dict[str, Any]:
    """Return one card as plain values. `usable_bytes`: what a run may reserve on it."""
    return {
        "name": card.name,
        "vendor": card.vendor,
        "usable_bytes": card.memory_bytes,
        "usable_by_a_run_bytes": usable_bytes,
        "capability": None if card.capability is None else ".".join(str(part) for part in card.capability),
        "multiprocessors": card.multiprocessors,
        "bf16": card.bf16,
        "fp8": card.fp8,
    }
