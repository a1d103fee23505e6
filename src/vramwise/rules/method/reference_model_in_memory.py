"""reference-model-in-memory"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

# Methods whose loss never asks a reference model; the trainer loads one all the same.
_NEEDLESS = {"simpo": "SimPO has no reference", "grpo": "GRPO uses it only where trl.beta is above 0"}


@rule(
    id="reference-model-in-memory",
    severity=Severity.WARNING,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\n",
    good="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="The trainer loads the second model without a word.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Preference training without an adapter holds a second full model.

    DPO and its relatives compare the trained model with the model before training. With an adapter the reference is the
    base with the adapter switched off and costs nothing. Without one the trainer loads the model again: 2 more bytes a
    parameter in bf16, and its forward pass needs activations and logits of its own. It does so for every `rl` but ORPO,
    for SimPO and for GRPO with beta 0 as well, which never ask the reference.

    Train an adapter, use ORPO, or shard the models (FSDP, ZeRO 3).
    """
    if not run.rl or run.rl == "orpo" or run.adapter:
        return
    size = {"bf16": 2, "fp16": 2, "fp32": 4}[run.weights_dtype]
    aside = f" ({_NEEDLESS[run.rl]})" if run.rl in _NEEDLESS else ""
    yield Hit(
        field="rl",
        message=(
            f"{run.keys['rl']}: {run.rl} without an adapter loads the model a second time as reference: {size} more "
            f"bytes a parameter{aside}; with a LoRA adapter the base itself is the reference"
        ),
    )
