"""modules-to-save-full-copies"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_VOCABULARY_SIZED = ("embed_tokens", "lm_head", "wte", "embed_in", "embed_out", "word_embeddings")


@rule(
    id="modules-to-save-full-copies",
    severity=Severity.INFO,
    topic="method",
    bad="adapter: lora\nlora_target_linear: true\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\n",
    good="adapter: lora\nlora_target_linear: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
