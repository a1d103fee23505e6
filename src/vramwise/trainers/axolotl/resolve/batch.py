"""Resolves batch sizes as Axolotl does."""

from __future__ import annotations

from vramwise.trainers.fields import Fields
from vramwise.types import Target


def resolve_batch(fields: Fields, target: Target) -> None:
    """Fill micro_batch_size, gradient_accumulation_steps and effective_batch_size."""
    micro = fields.at_least_one("micro_batch_size", 1)
    accumulation = _accumulation(fields, micro)
    ranks = fields.values["data_parallel"]
    why = f"micro {micro} × accumulation {accumulation} × data-parallel ranks {ranks}"
    fields.derive("effective_batch_size", micro * accumulation * ranks, why)


def _accumulation(fields: Fields, micro: int) -> int:
    config, name = fields.config, "gradient_accumulation_steps"
    fields.keys[name] = name
    batch = config.get("batch_size")
    if batch and config.get(name) is None:
        if name in config:  # an explicit null is the only case in which Axolotl divides
            why = f"batch_size {batch} // micro {micro}, because {name} is null"
            return int(fields.derive(name, max(1, batch // micro), why, key="batch_size"))
        why = "Axolotl's default 1 stays although batch_size is set"
        return int(fields.derive(name, 1, why, key="batch_size"))
    return fields.at_least_one(name, 1)
