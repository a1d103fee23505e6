"""unfrozen-with-layers-to-transform"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="unfrozen-with-layers-to-transform",
    severity=Severity.ERROR,
    topic="method",
    bad="adapter: lora\npeft_layers_to_transform: [0, 1]\nunfrozen_parameters:\n  - ^lm_head.weight$\n",
    good="adapter: lora\npeft_layers_to_transform: [0, 1]\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Layers for LoRA are chosen in two ways that contradict each other, or only half.

    `unfrozen_parameters` freezes everything it does not name, LoRA weights included; `peft_layers_to_transform` says
    which layers get LoRA weights to train. Together they leave weights that nobody meant to freeze, and Axolotl refuses
    the file. It also refuses `peft_layers_pattern`, the name of the layer list, without `peft_layers_to_transform`.

    Use one of the two; whole modules can be trained beside LoRA with `lora_modules_to_save`.
    """
    layers = run.config.get("peft_layers_to_transform")
    if run.adapter.kind and layers and run.config.get("unfrozen_parameters"):
        message = (
            "unfrozen_parameters with peft_layers_to_transform: one freezes what the other adds, Axolotl refuses the "
            "file"
        )
        yield Hit(key="unfrozen_parameters", message=message)
    if run.config.get("peft_layers_pattern") and not layers:
        message = "peft_layers_pattern without peft_layers_to_transform: it names no layers, Axolotl refuses the file"
        yield Hit(key="peft_layers_pattern", message=message)
