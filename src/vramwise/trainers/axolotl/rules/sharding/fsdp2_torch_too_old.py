"""fsdp2-torch-too-old"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="fsdp2-torch-too-old",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --torch 2.6",
    good_options="--gpus 2 --torch 2.7",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP2 on a torch before 2.7.

    Axolotl relies on the `fully_shard` of torch 2.7 for FSDP2 and stops on anything older. Upgrade torch; FSDP1 would
    run, but is deprecated.
    """
    if run.sharding == "fsdp2" and run.config.get("fsdp_config") and run.target.torch < (2, 7):
        have = ".".join(str(part) for part in run.target.torch)
        yield Hit(
            key="fsdp_version",
            near=("fsdp_config",),
            message=f"FSDP2 needs torch 2.7, the target has {have}: Axolotl stops",
        )
