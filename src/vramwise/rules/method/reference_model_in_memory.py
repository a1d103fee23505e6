"""reference-model-in-memory"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, as_written, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="reference-model-in-memory",
    severity=Severity.WARNING,
    costs_memory=True,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\n",
    good="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="The trainer loads the second model without a word.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Preference training without an adapter holds a second full model.

    DPO and its relatives compare the trained model with the model before training. With an adapter the reference is the
    base with the adapter switched off and costs nothing. Without one the model is loaded again: for DPO in the type of
    the weights, 2 more bytes a parameter in bf16; for KTO, and for GRPO with beta above 0, TRL loads one of its own in
    fp32: 4 bytes. Its forward pass needs logits of its own besides. The loader fetches a second model for every method
    but ORPO; where TRL does not take it (KTO, SimPO, GRPO) it is in the way until training starts.

    Train an adapter, use ORPO, or shard the models (FSDP, ZeRO 3).
    """
    if run.adapter.kind or (run.objective.reference != "model" and not run.objective.spare_model):
        return
    size = {"bf16": 2, "fp16": 2, "fp32": 4}
    parts = []
    if run.objective.reference == "model":
        parts.append(f"holds a second model as reference: {size[run.objective.reference_dtype]} more bytes a parameter")
    if run.objective.spare_model:
        parts.append(
            f"loads one that is not used: {size[run.precision.weights_dtype]} bytes a parameter until training starts"
        )
    yield Hit(
        field="rl",
        message=f"{_method(run)} without an adapter {', and '.join(parts)}; a LoRA adapter needs no second model",
    )


def _method(run: RunSpec) -> str:
    """The method as the file names it; where the command names it, its name alone."""
    written, name = as_written(run, "rl"), str(run.objective.rl)
    return written if written is not None and written.endswith(f": {name}") else name.upper()
