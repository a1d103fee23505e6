"""deepspeed-with-fsdp"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="deepspeed-with-fsdp",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="sharding",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\ndeepspeed: deepspeed_configs/zero2.json\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
    beyond_trainer=(
        "Up to 0.19 Axolotl refuses `fsdp` with `deepspeed`, but lets `fsdp_config` through; in SFT transformers "
        "refuses the pair after the model has loaded, in RL DeepSpeed is ignored."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """DeepSpeed and FSDP are both configured.

    Only one can shard the run. Axolotl stops since 0.20. Before, its check looks at the old `fsdp` key and misses
    `fsdp_config`. What follows: it
    prepares FSDP and passes the DeepSpeed file on to transformers, whose trainer refuses the pair when it is built,
    after the model has loaded. In RL the DeepSpeed file is not passed on, so FSDP runs and DeepSpeed is ignored.
    Remove one.
    """
    if not run.config.get("deepspeed") or not run.sharding.kind.startswith("fsdp"):
        return
    key = "fsdp" if run.config.get("fsdp") else "fsdp_config"
    stops = key == "fsdp" or schema_of(run).since("0.20.0")
    ignored = not stops and run.objective.rl is not None
    end = "Axolotl stops" if stops else "Axolotl accepts it, transformers stops after the model has loaded"
    yield Hit(
        key="deepspeed",
        severity=Severity.WARNING if ignored else Severity.ERROR,
        message=f"deepspeed and {key} are both set: " + ("FSDP runs and DeepSpeed is ignored" if ignored else end),
        fix=(safe if ignored else unsafe)("Keep FSDP: remove deepspeed", delete_key("deepspeed")),
    )
