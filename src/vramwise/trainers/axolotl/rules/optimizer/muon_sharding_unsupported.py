"""muon-sharding-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.optimizer_sharding import unsupported_sharding
from vramwise.types import RunSpec, Severity


@rule(
    id="muon-sharding-unsupported",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="optimizer: muon\nfsdp_version: 1\nfsdp_config:\n  reshard_after_forward: true\n",
    good="optimizer: muon\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Muon together with DeepSpeed or FSDP1.

    Muon orthogonalises whole weight matrices. DeepSpeed's ZeRO and FSDP1 flatten the parameters into shards in which
    there are no matrices left, so Axolotl refuses both, for `muon_8bit` (since 0.21) too. It works on one GPU, with
    DDP, and with FSDP2, which keeps every parameter a matrix of its own.
    """
    if run.optimizer.name in ("muon", "muon_8bit"):
        yield from unsupported_sharding(run, "it updates whole matrices and runs on DDP or FSDP2 only")
