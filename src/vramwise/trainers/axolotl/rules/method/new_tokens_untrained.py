"""new-tokens-untrained"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="new-tokens-untrained",
    severity=Severity.WARNING,
    topic="method",
    bad="adapter: lora\nlora_target_linear: true\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\nlora_target_linear: true\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl looks at changed special tokens only; added tokens pass and stay frozen (run with PEFT).",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """New tokens are added under LoRA, but nothing trains their embeddings.

    The embedding grows by the new rows, filled at random around the mean of the old ones, and LoRA then freezes it: the
    new tokens keep what they were given at the start. The adapter can only learn around them.

    `peft_trainable_token_indices` with the ids of the new tokens trains just those rows and costs next to nothing.
    `lora_modules_to_save: [embed_tokens, lm_head]` trains all rows, at 8 bytes a parameter with Adam in bf16. Tokens
    that the tokenizer knows already need neither.
    """
    if not run.adapter.kind or run.config.get("peft_trainable_token_indices") or run.adapter.lora_modules_to_save:
        return
    if run.adapter.added_tokens:
        key = "tokens" if run.config.get("tokens") else "special_tokens.additional_special_tokens"
        count = run.adapter.added_tokens
        message = f"{count} token(s) are added, but LoRA freezes the embeddings: rows that are new are never trained"
        yield Hit(key=key, message=message)
