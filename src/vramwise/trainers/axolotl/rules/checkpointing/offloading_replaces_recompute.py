"""offloading-replaces-recompute"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="offloading-replaces-recompute",
    severity=Severity.INFO,
    topic="checkpointing",
    bad="adapter: lora\ngradient_checkpointing: true\nactivation_offloading: true\n",
    good="adapter: lora\ngradient_checkpointing: true\nactivation_offloading: hidden_states\n",
    beyond_trainer="Both keys are on, but with an adapter only the offloading happens.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """With an adapter, activation offloading takes the place of recomputation.

    `gradient_checkpointing: true` and `activation_offloading: true` read as if activations were recomputed and the
    rest offloaded. With LoRA or QLoRA Axolotl turns checkpointing off and streams the saved activations to host
    memory: no recomputation, more traffic and host memory. In a full fine-tune both happen. `activation_offloading:
    hidden_states` keeps recomputation and offloads the layers' inputs only.
    """
    if not run.gradient_checkpointing or run.recompute:
        return
    value = str(run.config.get("activation_offloading", "true")).lower()
    yield Hit(
        key="activation_offloading",
        near=("gradient_checkpointing",),
        message=(
            f"adapter {run.adapter} with activation_offloading {value}: activations go to host memory instead of being "
            "recomputed, gradient_checkpointing does nothing more"
        ),
    )
