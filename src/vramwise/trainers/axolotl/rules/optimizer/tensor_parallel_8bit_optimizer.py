"""tensor-parallel-8bit-optimizer"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import optimizer_group
from vramwise.types import RunSpec, Severity


@rule(
    id="tensor-parallel-8bit-optimizer",
    severity=Severity.WARNING,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_bnb_8bit\ntensor_parallel_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\ntensor_parallel_size: 2\n",
    options="--gpus 2",
    beyond_trainer="Axolotl has a check for it that is never run, so the config passes.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An 8-bit optimizer of bitsandbytes with tensor parallelism.

    Tensor parallelism holds the split weights as distributed tensors, as FSDP2 does, and the kernels of bitsandbytes
    do not know those (bitsandbytes#1633). Axolotl means to refuse the pair, but the class that holds its check
    is not in use, so nothing is said before the run fails. torchao's `adamw_torch_8bit` handles distributed tensors.
    """
    name, size = run.optimizer, run.tensor_parallel_size
    if size <= 1 or name not in optimizer_group("bitsandbytes_8bit"):
        return
    yield Hit(
        key="optimizer",
        message=(
            f"optimizer {name} with tensor_parallel_size {size}: the 8-bit kernels of bitsandbytes do not know split "
            "weights; Axolotl means to refuse this, but its check never runs"
        ),
        fix=unsafe("Use torchao's 8-bit AdamW: adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit")),
    )
