"""fsdp2-8bit-optimizer"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_REFUSED = ("adamw_8bit", "adamw_bnb_8bit")


@rule(
    id="fsdp2-8bit-optimizer",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="optimizer",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_8bit\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    options="--gpus 2",
    beyond_trainer=(
        "Axolotl refuses adamw_8bit and adamw_bnb_8bit only; the other 8-bit optimizers of bitsandbytes use the same "
        "kernels, so they are warned about."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An 8-bit optimizer of bitsandbytes under FSDP2.

    FSDP2 holds every parameter as a distributed tensor. The kernels of bitsandbytes expect plain tensors of the local
    size: the first optimizer step ends in an illegal memory access (bitsandbytes#1633, open; nothing in 0.50.2
    handles distributed tensors). Axolotl refuses two of the names and lets the paged and the Lion variants through.
    torchao's `adamw_torch_8bit` supports FSDP2 and keeps its state in 8 bits as well.
    """
    name = run.optimizer.name
    if run.sharding.kind != "fsdp2" or name not in schema_of(run).optimizer_group("bitsandbytes_8bit"):
        return
    refused = name in _REFUSED
    end = "Axolotl stops" if refused else "an illegal memory access is likely at the first step"
    yield Hit(
        key="optimizer",
        severity=Severity.ERROR if refused else Severity.WARNING,
        message=f"optimizer {name} with FSDP2: the 8-bit kernels of bitsandbytes do not know sharded parameters, {end}",
        fix=unsafe("Use torchao's 8-bit AdamW: adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit")),
    )
