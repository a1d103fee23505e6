"""fsdp2-efficient-loading-4bit"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.remedies import written_key
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_KEY = "fsdp_config.cpu_ram_efficient_loading"


@rule(
    id="fsdp2-efficient-loading-4bit",
    severity=Severity.ERROR,
    topic="sharding",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: false\n"
    ),
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP2 loads a 4-bit base with `cpu_ram_efficient_loading`.

    Efficient loading reads the weights on rank 0 only and scatters them. Under 4 bits rank 0 holds packed weights
    while the others expect unpacked shapes, and the scatter hangs. Axolotl 0.19 stops; 0.18 runs into the hang. Off,
    every rank reads the checkpoint: more host memory while loading, the same training.

    Since 0.20 rank 0 quantises on its CPU (`qlora_sharded_model_loading`, on by itself with `adapter: qlora`), which
    works; without it Axolotl stops as before.
    """
    if not (run.sharding.kind == "fsdp2" and run.config.get(_KEY) and run.config.get("load_in_4bit")):
        return
    if not _staged_on_the_cpu(run):
        yield Hit(
            key=_KEY,
            message="cpu_ram_efficient_loading with load_in_4bit under FSDP2 hangs at the scatter: Axolotl stops",
            fix=safe("Load on every rank", set_key(written_key(run, _KEY), False)),
        )


def _staged_on_the_cpu(run: RunSpec) -> bool:
    if not schema_of(run).since("0.20.0"):
        return False
    return bool(run.config.get("qlora_sharded_model_loading", run.adapter.kind == "qlora"))
