"""falcon-fsdp"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="falcon-fsdp",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: tiiuae/falcon-7b\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: tiiuae/falcon-7b\ndeepspeed: deepspeed_configs/zero2.json\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A Falcon model under FSDP.

    Axolotl stops when `falcon` is in the name of the base model and `fsdp_config` is set; up to 0.19 its check looks at
    the old key `fsdp` only. Shard Falcon with DeepSpeed, or train it with an adapter on each GPU.
    """
    key = "fsdp_config" if schema_of(run).since("0.20.0") else "fsdp"
    if run.config.get(key) and "falcon" in (run.base_model or "").lower():
        yield Hit(key=key, message=f"{key} with {run.base_model}: Axolotl does not support FSDP for Falcon and stops")
