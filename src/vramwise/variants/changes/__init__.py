"""What may be changed about a run, each change written once: when it applies, what it alters, and what that does.

In RunSpec's words: a trainer spells a change in its own keys. Whether a change helps is asked of a prediction
(`attempt`), never decided here. Words that are no field of RunSpec stand in `SETTINGS`.
"""

from __future__ import annotations

from vramwise.variants.changes.activations import (
    checkpoint_activations,
    legacy_offloading,
    nonreentrant_checkpointing,
    pad_rows,
    reentrant_checkpointing,
    shorten_rows,
    turn_checkpointing_on,
)
from vramwise.variants.changes.base import SETTINGS, Builder, change
from vramwise.variants.changes.batches import (
    equal_eval_batch,
    halve_micro_batch,
    no_automatic_batch,
    one_row,
    sizes_below,
    smaller_micro_batches,
    smaller_sizes,
)
from vramwise.variants.changes.dtypes import (
    let_card_choose,
    load_in_bf16,
    pad_for_fp8,
    train_in_bf16,
    train_without_bf16,
)
from vramwise.variants.changes.fused import fuse_loss
from vramwise.variants.changes.kernels import (
    compile_model,
    empty_cache_at_eval,
    expandable_segments,
    flash_attention,
    fused_attention,
    plain_attention,
    separate_samples,
)
from vramwise.variants.changes.methods import quantize_base
from vramwise.variants.changes.spread import exchange_each_step, fewer_workers, second_fsdp, shard_checkpoints
from vramwise.variants.changes.weights import (
    eight_bit_optimizer,
    fused_adamw,
    handled_optimizer,
    unpaged_optimizer,
)

__all__ = [
    "SETTINGS",
    "Builder",
    "change",
    "checkpoint_activations",
    "compile_model",
    "eight_bit_optimizer",
    "empty_cache_at_eval",
    "equal_eval_batch",
    "exchange_each_step",
    "expandable_segments",
    "fewer_workers",
    "flash_attention",
    "fuse_loss",
    "fused_adamw",
    "fused_attention",
    "halve_micro_batch",
    "handled_optimizer",
    "legacy_offloading",
    "let_card_choose",
    "load_in_bf16",
    "no_automatic_batch",
    "nonreentrant_checkpointing",
    "one_row",
    "pad_for_fp8",
    "pad_rows",
    "plain_attention",
    "quantize_base",
    "reentrant_checkpointing",
    "second_fsdp",
    "separate_samples",
    "shard_checkpoints",
    "shorten_rows",
    "sizes_below",
    "smaller_micro_batches",
    "smaller_sizes",
    "train_in_bf16",
    "train_without_bf16",
    "turn_checkpointing_on",
    "unpaged_optimizer",
]
