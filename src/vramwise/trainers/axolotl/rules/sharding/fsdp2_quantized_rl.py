"""fsdp2-quantized-rl"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.remedies import PREFERENCE_TRAINING, choose_fsdp_version
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="fsdp2-quantized-rl",
    severity=Severity.ERROR,
    topic="sharding",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: lora\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """DPO, KTO, ORPO or IPO on a quantised base under FSDP2.

    These trainers do not support FSDP2 with `load_in_4bit` or `load_in_8bit`; Axolotl stops. Ways out: LoRA on an
    unquantised base, DeepSpeed, or FSDP1 up to Axolotl 0.19.
    """
    first_is_gone = schema_of(run).since("0.20.0")
    # Up to 0.19 Axolotl looks at the version alone, even where no fsdp_config makes use of it.
    asked = run.config.get("fsdp_config") if first_is_gone else run.config.get("fsdp_version") == 2
    if not asked or run.objective.rl not in PREFERENCE_TRAINING:
        return
    for key in ("load_in_4bit", "load_in_8bit"):
        if run.config.get(key):
            yield Hit(
                key=key,
                message=f"{key} with rl {run.objective.rl} under FSDP2 is not supported: Axolotl stops",
                fix=None if first_is_gone else unsafe("Shard with FSDP1: fsdp_version 1", choose_fsdp_version(run, 1)),
            )
