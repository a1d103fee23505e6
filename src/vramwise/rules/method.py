"""Rules for every trainer about the training method: full copies of modules, and reference models."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, as_written, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_VOCABULARY_SIZED = ("embed_tokens", "lm_head", "wte", "embed_in", "embed_out", "word_embeddings")


@rule(
    id="modules-to-save-full-copies",
    severity=Severity.INFO,
    bad="adapter: lora\nlora_target_linear: true\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\n",
    good="adapter: lora\nlora_target_linear: true\n",
)
def modules_to_save_full_copies(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An adapter trains full copies of the embeddings or the head.

    A module saved with the adapter is not adapted by LoRA but copied in full. The frozen original stays, and the copy
    is trained with gradients and optimizer states: 8 bytes per parameter with Adam in bf16 (2 + 2 + 4). Both have
    vocabulary × hidden parameters each: 128256 × 2048 is 2.0 GiB, often more than all LoRA weights and their states
    together. The saved adapter grows by the same modules.

    Leave them out unless you added tokens; for those, PEFT can train single rows (trainable token indices).
    """
    saved = [name for name in run.adapter.lora_modules_to_save if name in _VOCABULARY_SIZED]
    if run.adapter.kind and saved and not run.adapter.added_tokens:
        yield Hit(
            field="lora_modules_to_save",
            message=(
                f"{run.keys['lora_modules_to_save']} trains full copies of {' and '.join(saved)}: 8 bytes per "
                "parameter with Adam in bf16 for vocabulary × hidden parameters each, in addition to the frozen "
                "originals"
            ),
        )


@rule(
    id="reference-model-in-memory",
    severity=Severity.WARNING,
    costs_memory=True,
    bad="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\n",
    good="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="The trainer loads the second model without warning.",
)
def reference_model_in_memory(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Preference training without an adapter holds a second full model.

    DPO and similar methods compare the trained model with the original. With an adapter, the reference is the base
    with the adapter switched off and costs nothing. Without one, the model is loaded again. For DPO it has the dtype
    of the weights: 2 more bytes per parameter in bf16. For KTO, and for GRPO with beta above 0, TRL loads its own in
    fp32: 4 bytes. Its forward pass also needs its own logits. The loader loads a second model for every method except
    ORPO; methods that do not use it (KTO, SimPO, GRPO) still hold it until training starts.

    Train an adapter, use ORPO, or shard the models (FSDP, ZeRO 3).
    """
    if run.adapter.kind or (run.objective.reference != "model" and not run.objective.spare_model):
        return
    size = {"bf16": 2, "fp16": 2, "fp32": 4}
    parts = []
    if run.objective.reference == "model":
        parts.append(
            f"holds a second model as reference: {size[run.objective.reference_dtype]} more bytes per parameter"
        )
    if run.objective.spare_model:
        parts.append(
            f"loads one that is not used: {size[run.precision.weights_dtype]} bytes per parameter until training starts"
        )
    yield Hit(
        field="rl",
        message=f"{_method(run)} without an adapter {', and '.join(parts)}; a LoRA adapter needs no second model",
    )


def _method(run: RunSpec) -> str:
    """Return the method as written in the file; if the command names it, only its name."""
    written, name = as_written(run, "rl"), str(run.objective.rl)
    return written if written is not None and written.endswith(f": {name}") else name.upper()
