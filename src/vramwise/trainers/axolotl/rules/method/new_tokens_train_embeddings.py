"""new-tokens-train-embeddings"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="new-tokens-train-embeddings",
    severity=Severity.WARNING,
    costs_memory=True,
    topic="method",
    bad="adapter: lora\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl asks for lora_modules_to_save when special tokens change, without a word on its cost.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A few new tokens make LoRA train the whole embedding and head.

    New tokens need trained rows, and listing `embed_tokens` and `lm_head` in `lora_modules_to_save` is the usual way:
    each becomes a full trainable copy beside the frozen original, with gradients and optimizer states, 8 bytes a
    parameter with Adam in bf16. For a vocabulary of 128256 and width 2048 that is 2.0 GiB for each of the two, to train
    a handful of rows.

    `peft_trainable_token_indices` trains only the rows of the new tokens: list their ids instead.
    """
    if not run.adapter.kind or run.config.get("peft_trainable_token_indices"):
        return
    saved = [name for name in run.adapter.lora_modules_to_save if name in ("embed_tokens", "lm_head")]
    if run.adapter.added_tokens and saved:
        yield Hit(
            key="lora_modules_to_save",
            message=(
                f"{run.adapter.added_tokens} new token(s) train full copies of {' and '.join(saved)}, with gradients "
                "and "
                "optimizer states; peft_trainable_token_indices trains only the new rows"
            ),
        )
