"""fsdp-offload-8bit-optimizer"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="fsdp-offload-8bit-optimizer",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\nfsdp_config:\n  offload_params: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch\nfsdp_config:\n  offload_params: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP1 offloads parameters to host memory while the optimizer is an 8-bit one.

    With `offload_params` the optimizer steps on the CPU, on flat shards; the 8-bit optimizers are made for the GPU.
    Axolotl stops for every optimizer with `8bit` in its name. The state lies in host memory anyway: a plain AdamW
    costs no GPU memory there. FSDP1 ends with Axolotl 0.19; FSDP2 offloads with torchao's 8-bit optimizers too.
    """
    if run.sharding.kind != "fsdp1" or not run.sharding.offload_params or "8bit" not in run.optimizer.name:
        return
    yield Hit(
        key="optimizer",
        message=f"optimizer {run.optimizer.name} with FSDP1 offload: it would step on the CPU, which Axolotl refuses",
        fix=unsafe("Step on the CPU with AdamW: adamw_torch", set_key("optimizer", "adamw_torch")),
    )
