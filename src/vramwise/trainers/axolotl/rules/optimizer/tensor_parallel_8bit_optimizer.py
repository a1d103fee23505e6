"""tensor-parallel-8bit-optimizer"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_REFUSED = ("paged_adamw_8bit", "adamw_8bit", "adamw_bnb_8bit")


@rule(
    id="tensor-parallel-8bit-optimizer",
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_bnb_8bit\ntensor_parallel_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\ntensor_parallel_size: 2\n",
    options="--gpus 2",
    beyond_trainer="Axolotl refuses three of the names, and those only since 0.20: before, its check is never run.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An 8-bit optimizer of bitsandbytes with tensor parallelism.

    Tensor parallelism holds the split weights as distributed tensors, as FSDP2 does, and the kernels of bitsandbytes do
    not know those (bitsandbytes#1633). Axolotl refuses AdamW's three names since 0.20. Up to 0.19 the class that holds
    its check is not in use, so nothing is said before the run fails. torchao's `adamw_torch_8bit` handles distributed
    tensors.
    """
    name, size = run.optimizer.name, run.sharding.tensor_parallel_size
    if size <= 1 or name not in schema_of(run).optimizer_group("bitsandbytes_8bit"):
        return
    refused = schema_of(run).since("0.20.0") and name in _REFUSED
    end = "Axolotl stops" if refused else "the first step is likely to fail"
    yield Hit(
        key="optimizer",
        severity=Severity.ERROR if refused else Severity.WARNING,
        message=(
            f"optimizer {name} with tensor_parallel_size {size}: the 8-bit kernels of bitsandbytes do not know split "
            f"weights, {end}"
        ),
        fix=unsafe("Use torchao's 8-bit AdamW: adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit")),
    )
