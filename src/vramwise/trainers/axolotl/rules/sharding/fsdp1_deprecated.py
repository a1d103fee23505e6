"""fsdp1-deprecated"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fsdp1-deprecated",
    severity=Severity.INFO,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP runs in its first version, which is deprecated.

    An `fsdp_config` without `fsdp_version` means version 1; Axolotl and transformers are about to remove it. FSDP2
    shards each parameter by itself instead of flat groups and frees memory earlier. When you change over, check the
    block's keys: sharding_strategy becomes reshard_after_forward.
    """
    if run.sharding != "fsdp1" or not run.config.get("fsdp_config"):
        return
    written = run.config.get("fsdp_version")
    how = f"fsdp_version is {written}" if written else "fsdp_version is not written, which means 1"
    yield Hit(
        key="fsdp_version",
        near=("fsdp_config",),
        message=f"{how}: FSDP1 is deprecated and about to be removed",
        change=changes.second_fsdp(run),
    )
