"""flash-optimizer-sharding-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.optimizer_sharding import unsupported_sharding
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="flash-optimizer-sharding-unsupported",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\nfsdp_config:\n  reshard_after_forward: true\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A flash optimizer together with DeepSpeed or FSDP1.

    `flash_adamw`, `flash_adam`, `flash_sgd`, `flash_sgdw` and `flash_lion` work on each parameter by itself.
    DeepSpeed's ZeRO and FSDP1 replace the parameters by flat shards of many; Axolotl refuses both (FSDP1 is gone since
    0.20). Use DDP or FSDP2.
    """
    if run.optimizer.name in schema_of(run).optimizer_group("flash"):
        yield from unsupported_sharding(run, "the flash optimizers run on DDP or FSDP2 only")
