"""Changes that may mend a failure, each with its title for a reader without a config.

With a config, `variants.changes` says whether a change applies and its trainer spells it; without one, the trainer
names the keys to set. Which remedy suits which cause is `advice`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.diagnosis.evidence import Remedy
from vramwise.subject import Subject
from vramwise.trainers.base import Trainer
from vramwise.types import Change, Fix
from vramwise.variants import changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A remedy to be built for a case: the change's name, its title without a config, and when it applies."""

    name: str
    title: str
    change: changes.Builder

    def __call__(self, subject: Subject | None, trainer: Trainer) -> Remedy | None:
        """The remedy for a config, or in general, in the trainer's words; None where it does not apply."""
        if subject is None:
            return Remedy(title=self.title, keys=trainer.words(self.name))
        wanted = self.change(subject.run)
        return None if wanted is None else spelt(subject, wanted)


def spelt(subject: Subject, wanted: Change) -> Remedy | None:
    """A change as its trainer writes it; None where it has no word for it."""
    spelling = subject.trainer.spell(subject.run, wanted)
    if spelling is None or not spelling.edits:
        return None
    title = spelling.title or wanted.title
    return Remedy(title=title, fix=Fix(title=title, safe=wanted.safe, edits=spelling.edits, change=wanted))


halve_micro_batch = Build(
    name="smaller-micro-batch",
    title="Halve the micro-batch and double the accumulation: same effective batch",
    change=changes.halve_micro_batch,
)
checkpoint_activations = Build(
    name="checkpoint-activations",
    title="Recompute activations: gradient checkpointing",
    change=changes.checkpoint_activations,
)
fuse_loss = Build(
    name="fuse-loss",
    title="Compute the loss without holding the logits: Liger's fused linear cross entropy",
    change=changes.fuse_loss,
)
eight_bit_optimizer = Build(
    name="eight-bit-optimizer",
    title="Keep the optimizer's state in 8 bits",
    change=changes.eight_bit_optimizer,
)
# Written in DeepSpeed's own file: no trainer spells it.
offload_optimizer = Build(
    name="offload-optimizer", title="Keep the optimizer's state in host memory", change=lambda _: None
)
equal_eval_batch = Build(
    name="equal-eval-batch", title="Evaluate at the training micro-batch", change=changes.equal_eval_batch
)
collect_garbage_at_eval = Build(
    name="empty-cache-at-eval",
    title="Empty the cache around each evaluation",
    change=changes.empty_cache_at_eval,
)
pad_to_length = Build(name="pad-rows", title="Give every batch the same shape: pad it", change=changes.pad_rows)
fused_attention = Build(
    name="fused-attention",
    title="Use an attention that never writes out its scores: sdpa",
    change=changes.fused_attention,
)
shorten = Build(name="shorten-rows", title="Shorten the rows (drops or cuts long samples)", change=changes.shorten_rows)
quantize_base = Build(name="quantize-base", title="Load the base in 4 bits: QLoRA", change=changes.quantize_base)
shard_checkpoints = Build(name="shard-checkpoints", title="Write sharded checkpoints", change=changes.shard_checkpoints)
train_in_bf16 = Build(name="train-in-bf16", title="Train in bf16", change=changes.train_in_bf16)
train_without_bf16 = Build(
    name="train-without-bf16",
    title="Use fp16 on this card (with an adapter; else fp32), and no tf32",
    change=changes.train_without_bf16,
)
flash_attention = Build(
    name="train-in-bf16-with-flash",
    title="Train in bf16 and let the trainer cast norms and embeddings",
    change=changes.train_in_bf16,
)
no_flash_attention = Build(name="plain-attention", title="Use sdpa on this card", change=changes.plain_attention)
second_fsdp = Build(
    name="second-fsdp",
    title="Shard with FSDP2, which keeps each parameter's own dtype",
    change=changes.second_fsdp,
)
reentrant = Build(
    name="reentrant-checkpointing",
    title="Use reentrant checkpointing",
    change=changes.reentrant_checkpointing,
)
pad_for_fp8 = Build(name="pad-for-fp8", title="Pad to token counts that divide", change=changes.pad_for_fp8)
no_auto_batch = Build(name="no-automatic-batch", title="Set the batches yourself", change=changes.no_automatic_batch)
fewer_workers = Build(name="fewer-workers", title="Prefetch 8 batches with one worker", change=changes.fewer_workers)
legacy_offloading = Build(
    name="legacy-offloading", title="Offload activations the older way", change=changes.legacy_offloading
)
known_optimizer = Build(
    name="handled-optimizer", title="Use the name that the trainer handles", change=changes.handled_optimizer
)
unpaged_optimizer = Build(
    name="unpaged-optimizer", title="Use an optimizer without paging", change=changes.unpaged_optimizer
)
