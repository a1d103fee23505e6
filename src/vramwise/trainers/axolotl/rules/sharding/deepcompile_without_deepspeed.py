"""deepcompile-without-deepspeed"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="deepcompile-without-deepspeed",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\ndeepcompile: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\ndeepcompile: true\ndeepspeed: deepspeed_configs/zero3.json\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`deepcompile` without DeepSpeed.

    DeepCompile is a part of DeepSpeed; Axolotl stops when no `deepspeed` file is named. Name one, or use
    `torch_compile`.
    """
    if run.config.get("deepcompile") and not run.config.get("deepspeed"):
        yield Hit(
            key="deepcompile",
            message="deepcompile is a part of DeepSpeed, and deepspeed is not set: Axolotl stops",
            fix=unsafe("Remove deepcompile", delete_key("deepcompile")),
        )
