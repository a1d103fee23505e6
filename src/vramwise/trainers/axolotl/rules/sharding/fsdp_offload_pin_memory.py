"""fsdp-offload-pin-memory"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.remedies import written_key
from vramwise.types import RunSpec, Severity

_KEY = "fsdp_config.cpu_offload_pin_memory"


@rule(
    id="fsdp-offload-pin-memory",
    severity=Severity.ERROR,
    topic="sharding",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\n"
        "fsdp_config:\n  cpu_offload_pin_memory: false\n  reshard_after_forward: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\n"
        "fsdp_config:\n  cpu_offload_pin_memory: false\n  offload_params: true\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Pinned memory is turned off for an offload that does not happen, or that cannot do without.

    `cpu_offload_pin_memory: false` lets offloaded parameters be swapped out on a host short of memory. FSDP1 always
    pins, and without `offload_params` nothing is offloaded: Axolotl stops in both cases. Pinning, the default, changes
    no result.
    """
    if run.config.get(_KEY) is not False:
        return
    if run.sharding.kind == "fsdp1":
        why = "FSDP1 always pins offloaded parameters"
    elif not run.config.get("fsdp_config.offload_params"):
        why = "offload_params is not on, so nothing is offloaded"
    else:
        return
    yield Hit(
        key=_KEY,
        message=f"cpu_offload_pin_memory: false, but {why}: Axolotl stops",
        fix=safe("Pin, as by default", set_key(written_key(run, _KEY), True)),
    )
