"""offloading-of-recomputed"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="offloading-of-recomputed",
    severity=Severity.INFO,
    topic="checkpointing",
    bad="adapter: lora\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
    "activation_offloading: true\n",
    good="adapter: lora\ngradient_checkpointing: true\nactivation_offloading: hidden_states\n",
    beyond_trainer="Axolotl means offloading to replace recomputation here; both happen, one on top of the other.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Reentrant checkpointing with an adapter: what is recomputed is sent to host memory and back.

    Axolotl leaves checkpointing to offloading (`activation_offloading: true`, `disk` or `legacy`), but with LoRA or
    QLoRA the model loader has turned it on already. The offloader then also takes what a block saves while it is
    recomputed, and keeps a block's worth of it on the card for longer than needed: more memory and traffic than either
    alone. Non-reentrant checkpointing (the default since 0.21) or `activation_offloading: hidden_states` send the
    layers' inputs only.
    """
    if not (run.adapter.kind and run.savings.recompute and run.savings.checkpointing_reentrant):
        return
    if run.savings.activation_offloading not in ("stream", "legacy"):
        return
    value = str(run.config.get("activation_offloading", "true")).lower()
    yield Hit(
        key="activation_offloading",
        near=("gradient_checkpointing",),
        message=(
            f"adapter {run.adapter.kind} with activation_offloading {value} and reentrant checkpointing: blocks are "
            "recomputed, and what that saves goes to host memory and back"
        ),
    )
