"""deepspeed-file-missing"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="deepspeed-file-missing",
    severity=Severity.INFO,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\ndeepspeed: configs/our-cluster.json\n",
    good="base_model: meta-llama/Llama-3.2-1B\ndeepspeed: deepspeed_configs/zero3.json\n",
    options="--gpus 2",
    beyond_trainer="Says what could not be judged: the stage decides most of what a GPU has to hold.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The DeepSpeed file is not here, so its ZeRO stage is not known.

    The stage decides what is split across the GPUs: optimizer state (1), gradients too (2), weights too (3). A file
    beside the config or under the current folder is read, and the names that Axolotl ships (`zero1.json`,
    `zero3_bf16.json`…) are understood without it. For any other, stage 2 without offload is assumed.
    """
    if run.origins["sharding"].kind == "assumed":
        name = run.config.get("deepspeed")
        yield Hit(
            key="deepspeed",
            message=f"deepspeed {name} cannot be read from here: its ZeRO stage is not known, stage 2 is assumed",
        )
