"""liger-tensor-parallel"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import LIGER, listed_plugins
from vramwise.types import RunSpec, Severity


@rule(
    id="liger-tensor-parallel",
    severity=Severity.ERROR,
    topic="loss",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_rms_norm: true\ntensor_parallel_size: 2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_glu_activation: true\ntensor_parallel_size: 2\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Liger's RMS norm or fused loss with tensor parallelism.

    Tensor parallelism splits weights and activations across GPUs as distributed tensors; these two kernels take plain
    ones. Axolotl stops. Without them the model's own norm and loss are used: the same mathematics, more memory.
    """
    size = run.sharding.tensor_parallel_size
    if size <= 1 or LIGER not in listed_plugins(run):
        return
    for key in ("liger_rms_norm", "liger_fused_linear_cross_entropy"):
        if run.config.get(key):
            yield Hit(
                key=key,
                message=f"{key} does not work with tensor_parallel_size {size}: Axolotl stops",
                fix=unsafe(f"Remove {key}", delete_key(key)),
            )
