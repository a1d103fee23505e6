"""falcon-fsdp"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="falcon-fsdp",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: tiiuae/falcon-7b\nfsdp:\n  - full_shard\n  - auto_wrap\n",
    good="base_model: tiiuae/falcon-7b\ndeepspeed: deepspeed_configs/zero2.json\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A Falcon model with the old `fsdp` key.

    Axolotl stops when `falcon` is in the name of the base model and `fsdp` is set. Shard Falcon with DeepSpeed, or
    train it with an adapter on each GPU.
    """
    if run.config.get("fsdp") and "falcon" in (run.base_model or "").lower():
        yield Hit(key="fsdp", message=f"fsdp with {run.base_model}: Axolotl does not support FSDP for Falcon and stops")
