"""What several optimizers share: they work on one GPU, DDP and FSDP2, but neither under DeepSpeed nor under FSDP1."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit
from vramwise.types import RunSpec
from vramwise.variants import changes


def unsupported_sharding(run: RunSpec, why: str) -> Iterator[Hit]:
    """A hit for DeepSpeed and one for FSDP1; `why` says what the optimizer needs."""
    optimizer = run.optimizer.name
    if run.config.get("deepspeed"):
        yield Hit(
            key="deepspeed",
            message=f"optimizer {optimizer} does not work with DeepSpeed: {why}, so Axolotl stops",
        )
    if run.sharding.kind == "fsdp1":
        yield Hit(
            key="fsdp_version",
            near=("fsdp_config", "fsdp"),
            message=f"optimizer {optimizer} with FSDP1 (fsdp_version {_version(run)}): {why}, so Axolotl stops",
            change=changes.second_fsdp(run),
        )


def _version(run: RunSpec) -> str:
    return str(run.config.get("fsdp_version", "unset means 1"))
