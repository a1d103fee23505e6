"""layer-offloading-without-adapter"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="layer-offloading-without-adapter",
    severity=Severity.WARNING,
    topic="host",
    bad="base_model: meta-llama/Llama-3.2-1B\nlayer_offloading: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlayer_offloading: true\n",
    beyond_trainer="Axolotl accepts it and offloads nothing.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Layer offloading in a full fine-tune offloads nothing.

    `layer_offloading` moves the frozen weights of the decoder layers to host memory and streams them in layer by layer.
    A full fine-tune has no frozen weights: everything stays on the GPU, and only the hooks around each layer remain.

    Train an adapter to use it. For a full fine-tune, offload with FSDP (`offload_params`) or DeepSpeed, or save
    activations with gradient checkpointing and `activation_offloading`.
    """
    if run.savings.layer_offloading and not run.adapter.kind and not run.config.get("unfrozen_parameters"):
        yield Hit(
            key="layer_offloading",
            message="layer_offloading moves only frozen weights, and a full fine-tune has none: nothing is offloaded",
            fix=safe("Switch off what does nothing", set_key("layer_offloading", False)),
        )
