"""fsdp1-deprecated"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.remedies import choose_fsdp_version
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fsdp1-deprecated",
    explains={"fsdp-mixed-dtypes", "fsdp-mixed-frozen"},
    severity=Severity.INFO,
    also=(Severity.ERROR,),
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP in its first version, which is deprecated, and gone since Axolotl 0.20.

    Up to 0.19 an `fsdp_config` without `fsdp_version` means version 1. Since 0.20 it means 2, and Axolotl stops at any
    other. FSDP2 shards each parameter by itself instead of flat groups and frees memory earlier. When you change over,
    check the block's keys: sharding_strategy becomes reshard_after_forward.
    """
    if schema_of(run).since("0.20.0"):
        yield from _refused(run)
        return
    if run.sharding.kind != "fsdp1" or not run.config.get("fsdp_config"):
        return
    written = run.config.get("fsdp_version")
    how = f"fsdp_version is {written}" if written else "fsdp_version is not written, which means 1"
    yield Hit(
        key="fsdp_version",
        near=("fsdp_config",),
        message=f"{how}: FSDP1 is deprecated and about to be removed",
        change=changes.second_fsdp(run),
    )


def _refused(run: RunSpec) -> Iterator[Hit]:
    version = run.config.get("fsdp_version")
    if version is not None and str(version) != "2":
        yield Hit(
            key="fsdp_version",
            severity=Severity.ERROR,
            message=f"fsdp_version {version}: FSDP1 is gone since Axolotl 0.20, {schema_of(run).short} stops",
            fix=unsafe("Shard with FSDP2: fsdp_version 2", choose_fsdp_version(run, 2)),
        )
