"""The changes that can be made to a run: when each applies, what it sets, and its effect.

Changes are expressed in settings of RunSpec; a trainer turns them into its own keys. Whether a change helps is decided
by a prediction (`attempt`), not here. Keywords that are not fields of RunSpec are in `SETTINGS`.
"""

from vramwise.variants.changes.activations import checkpoint_activations as checkpoint_activations
from vramwise.variants.changes.activations import legacy_offloading as legacy_offloading
from vramwise.variants.changes.activations import nonreentrant_checkpointing as nonreentrant_checkpointing
from vramwise.variants.changes.activations import pad_rows as pad_rows
from vramwise.variants.changes.activations import reentrant_checkpointing as reentrant_checkpointing
from vramwise.variants.changes.activations import shorten_rows as shorten_rows
from vramwise.variants.changes.activations import turn_checkpointing_on as turn_checkpointing_on
from vramwise.variants.changes.base import SETTINGS as SETTINGS
from vramwise.variants.changes.base import Builder as Builder
from vramwise.variants.changes.base import change as change
from vramwise.variants.changes.batches import equal_eval_batch as equal_eval_batch
from vramwise.variants.changes.batches import halve_micro_batch as halve_micro_batch
from vramwise.variants.changes.batches import no_automatic_batch as no_automatic_batch
from vramwise.variants.changes.batches import one_row as one_row
from vramwise.variants.changes.batches import sizes_below as sizes_below
from vramwise.variants.changes.batches import smaller_micro_batches as smaller_micro_batches
from vramwise.variants.changes.batches import smaller_sizes as smaller_sizes
from vramwise.variants.changes.dtypes import let_card_choose as let_card_choose
from vramwise.variants.changes.dtypes import load_in_bf16 as load_in_bf16
from vramwise.variants.changes.dtypes import pad_for_fp8 as pad_for_fp8
from vramwise.variants.changes.dtypes import train_in_bf16 as train_in_bf16
from vramwise.variants.changes.dtypes import train_without_bf16 as train_without_bf16
from vramwise.variants.changes.kernels import compile_model as compile_model
from vramwise.variants.changes.kernels import empty_cache_at_eval as empty_cache_at_eval
from vramwise.variants.changes.kernels import expandable_segments as expandable_segments
from vramwise.variants.changes.kernels import flash_attention as flash_attention
from vramwise.variants.changes.kernels import fuse_loss as fuse_loss
from vramwise.variants.changes.kernels import fused_attention as fused_attention
from vramwise.variants.changes.kernels import plain_attention as plain_attention
from vramwise.variants.changes.kernels import separate_samples as separate_samples
from vramwise.variants.changes.methods import quantize_base as quantize_base
from vramwise.variants.changes.spread import exchange_each_step as exchange_each_step
from vramwise.variants.changes.spread import fewer_workers as fewer_workers
from vramwise.variants.changes.spread import second_fsdp as second_fsdp
from vramwise.variants.changes.spread import shard_checkpoints as shard_checkpoints
from vramwise.variants.changes.weights import eight_bit_optimizer as eight_bit_optimizer
from vramwise.variants.changes.weights import fused_adamw as fused_adamw
from vramwise.variants.changes.weights import handled_optimizer as handled_optimizer
from vramwise.variants.changes.weights import unpaged_optimizer as unpaged_optimizer
