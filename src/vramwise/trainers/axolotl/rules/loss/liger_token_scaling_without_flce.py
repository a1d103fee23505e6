"""liger-token-scaling-without-flce"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import LIGER, listed_plugins
from vramwise.types import Fix, RunSpec, Severity

_KEY = "liger_use_token_scaling"
_LOSS = "liger_fused_linear_cross_entropy"


@rule(
    id="liger-token-scaling-without-flce",
    severity=Severity.ERROR,
    topic="loss",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_use_token_scaling: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_use_token_scaling: true\nliger_fused_linear_cross_entropy: true\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`liger_use_token_scaling` without Liger's fused linear cross entropy.

    Token scaling is an option of that one loss kernel; Axolotl stops when the kernel is off. Turn the kernel on, or
    remove the option.
    """
    if LIGER not in listed_plugins(run) or not run.config.get(_KEY) or run.config.get(_LOSS):
        return
    yield Hit(
        key=_KEY,
        message=f"{_KEY} is an option of {_LOSS}, which is off: Axolotl stops",
        fix=_fix(run),
    )


def _fix(run: RunSpec) -> Fix:
    if run.kernels.loss_kernel != "stock" or run.sharding.tensor_parallel_size > 1:  # the kernel would be refused
        return unsafe(f"Remove {_KEY}", delete_key(_KEY))
    return unsafe(f"Turn {_LOSS} on", insert_key(_LOSS, True, beside=_KEY))
