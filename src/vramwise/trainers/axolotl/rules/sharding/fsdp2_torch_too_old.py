"""fsdp2-torch-too-old"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
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

    Axolotl relies on the `fully_shard` of torch 2.7 for FSDP2. Up to 0.20 it refuses anything older; since then it
    installs with newer versions only and does not look: sharding fails when the model is wrapped. Upgrade torch.
    """
    if run.sharding.kind == "fsdp2" and run.config.get("fsdp_config") and run.target.torch < (2, 7):
        have = ".".join(str(part) for part in run.target.torch)
        fails = "sharding fails when the model is wrapped" if schema_of(run).since("0.21.0") else "Axolotl stops"
        yield Hit(
            key="fsdp_version",
            near=("fsdp_config",),
            message=f"FSDP2 needs torch 2.7, the target has {have}: {fails}",
        )
