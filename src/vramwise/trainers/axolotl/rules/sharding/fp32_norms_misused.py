"""fp32-norms-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fp32-norms-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp32_norms: true\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nfp32_norms: true\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`fp32_norms` without FSDP2.

    The option keeps the norms in fp32 while FSDP2 runs the layers in bf16. FSDP1 needs one dtype in each flat group,
    and without FSDP there is nothing to configure: Axolotl stops. `fp32_norm_classes` alone is ignored.
    """
    if run.config.get("fp32_norms"):
        if run.config.get("fsdp_config") is None:
            yield Hit(
                key="fp32_norms",
                message="fp32_norms is an option of FSDP2, and there is no fsdp_config: Axolotl stops",
                fix=unsafe("Remove fp32_norms", delete_key("fp32_norms")),
            )
        elif run.sharding.kind == "fsdp1":
            yield Hit(
                key="fp32_norms",
                message="fp32_norms under FSDP1, which needs one dtype for norms and layers: Axolotl stops",
                change=changes.second_fsdp(run),
            )
    elif run.config.get("fp32_norm_classes"):
        yield Hit(
            severity=Severity.WARNING,
            key="fp32_norm_classes",
            message="fp32_norm_classes is ignored while fp32_norms is off",
            fix=safe("Remove fp32_norm_classes, which is ignored", delete_key("fp32_norm_classes")),
        )
