"""lora-dropout-on-parameters"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="lora-dropout-on-parameters",
    severity=Severity.ERROR,
    topic="method",
    bad="adapter: lora\nlora_dropout: 0.05\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    good="adapter: lora\nlora_dropout: 0\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LoRA dropout together with `lora_target_parameters`.

    `lora_target_parameters` puts LoRA on bare parameters, usually the 3-D weights of experts. There the update is added
    to the weight itself, not to a layer's output, so there is no input on which dropout could act. Axolotl refuses the
    file.

    Set `lora_dropout: 0`. That also saves a mask and a masked copy of the input at every LoRA layer.
    """
    if run.config.get("lora_target_parameters") and run.adapter.lora_dropout:
        message = (
            f"lora_dropout {run.adapter.lora_dropout:g} with lora_target_parameters: parameters take no dropout, "
            "Axolotl "
            "refuses the file"
        )
        fix = unsafe("Train without LoRA dropout", set_key("lora_dropout", 0))
        yield Hit(key="lora_dropout", message=message, fix=fix)
