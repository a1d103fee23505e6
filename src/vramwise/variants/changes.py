"""What may be changed about a run, each change written once: when it applies, what it alters, and what that does.

In RunSpec's words: a trainer spells a change in its own keys. Whether a change helps is asked of a prediction
(`attempt`), never decided here. Words that are no field of RunSpec stand in `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from vramwise.allocator.variables import EXPANDABLE
from vramwise.types import Change, RunSpec

Builder = Callable[[RunSpec], Change | None]
Effect = Literal["same", "rounding", "changes"]

# Settings that change memory but are no field of RunSpec, and what their values mean.
SETTINGS = {
    "empty_cache_at_eval": "the cache is emptied before an evaluation and after it",
    "loader_workers": "processes that load data",
    "loader_prefetch": "batches that each of them holds ready",
    "automatic_batch": "the batch is halved by itself after an out-of-memory",
    "tf32": "matrix products of fp32 tensors in tf32",
}
_PLAIN_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_torch_xla", "adamw_apex_fused")
_HANDLED_NAMES = {
    "ao_adamw_4bit": "adamw_torch_4bit",
    "ao_adamw_8bit": "adamw_torch_8bit",
    "ao_adamw_fp8": "adamw_torch_fp8",
}
_SHORTEST = 1024
# No card takes more rows at once; a number beyond it is a slip, and must not be counted down from.
_MOST_ROWS = 65536
_FLASH = "flash_attention_2"
_OTHER_KERNEL = "the same attention in another kernel: rounding alone differs"


def change(name: str, effect: Effect, title: str, why: str, **fields: Any) -> Change:
    """One change."""
    return Change(id=name, title=title, effect=effect, why=why, fields=fields)


# --- batches -----------------------------------------------------------------------------------------------------


def smaller_sizes(micro: int, accumulation: int) -> Iterator[tuple[int, int]]:
    """Every micro-batch of at most half the size, with its accumulation, the largest first; 5 × 2 → 2 × 5, 1 × 10."""
    product = micro * accumulation
    for size in range(min(micro // 2, _MOST_ROWS), 0, -1):
        if product % size == 0:
            yield size, product // size


def smaller_micro_batches(run: RunSpec) -> Iterator[Change]:
    """Every smaller micro-batch against more accumulation, the largest first."""
    for micro, accumulation in smaller_sizes(run.micro_batch_size, run.gradient_accumulation_steps):
        yield _micro_batch(run, micro, accumulation)


def halve_micro_batch(run: RunSpec) -> Change | None:
    """The largest micro-batch of at most half the size that keeps the effective batch."""
    return next(smaller_micro_batches(run), None)


def one_row(run: RunSpec) -> Change | None:
    """A micro-batch of one."""
    if run.micro_batch_size == 1:
        return None
    return _micro_batch(run, 1, run.micro_batch_size * run.gradient_accumulation_steps)


def _micro_batch(run: RunSpec, micro: int, accumulation: int) -> Change:
    before = (run.micro_batch_size, run.gradient_accumulation_steps)
    fields: dict[str, Any] = {"micro_batch_size": micro, "gradient_accumulation_steps": accumulation}
    if run.eval_batch_size is not None and run.eval_batch_size > micro:
        fields["eval_batch_size"] = micro
    return change(
        "smaller-micro-batch",
        "same",
        f"Micro-batch {before[0]} → {micro}, accumulation {before[1]} → {accumulation}: same effective batch",
        "micro-batch × accumulation stays, so each optimizer step sees the same samples",
        **fields,
    )


def equal_eval_batch(run: RunSpec) -> Change | None:
    """Evaluate in the shapes of training."""
    if run.eval_batch_size in (None, run.micro_batch_size):
        return None
    return change(
        "equal-eval-batch",
        "same",
        f"Evaluate at the training micro-batch: {run.micro_batch_size}",
        "the same samples are evaluated, in other groups",
        eval_batch_size=run.micro_batch_size,
    )


def no_automatic_batch(run: RunSpec) -> Change | None:
    """A batch that is written stays as it is."""
    return change(
        "no-automatic-batch",
        "changes",
        "Set the batches yourself and evaluate at the micro-batch",
        "a batch that halves by itself does not raise the accumulation: the effective batch changes",
        automatic_batch=False,
        eval_batch_size=run.micro_batch_size,
    )


# --- activations and shapes ----------------------------------------------------------------------------------------


def checkpoint_activations(run: RunSpec) -> Change | None:
    """Recompute instead of keeping."""
    if run.recompute or run.activation_offloading != "off":
        return None
    return turn_checkpointing_on(run)


def turn_checkpointing_on(run: RunSpec) -> Change | None:
    """Ask for it, whatever else is on; MPT has none."""
    if run.gradient_checkpointing or "mpt" in (run.base_model or "").lower():
        return None
    return change(
        "checkpoint-activations",
        "same",
        "Recompute activations: gradient checkpointing",
        "backward recomputes what forward computed, from the same inputs; about a quarter slower",
        gradient_checkpointing=True,
    )


def pad_rows(run: RunSpec) -> Change | None:
    """Constant shapes."""
    if run.constant_shapes or run.rl or not run.can_pad:
        return None
    return change(
        "pad-rows",
        "same",
        f"Pad every batch to {run.sequence_len} tokens",
        "pad tokens count neither in attention nor in the loss",
        pad_to_sequence_len=True,
    )


def shorten_rows(run: RunSpec) -> Change | None:
    """The last resort: shorter rows."""
    if run.sequence_len < _SHORTEST:
        return None
    half = run.sequence_len // 2
    return change(
        "shorten-rows",
        "changes",
        f"Rows of {half} tokens instead of {run.sequence_len} (drops or cuts long samples)",
        "samples above the new length are dropped or cut",
        sequence_len=half,
    )


def reentrant_checkpointing(run: RunSpec) -> Change | None:
    """Reentrant checkpointing recomputes as forward did, and compares nothing."""
    return None if run.checkpointing_reentrant else _reentrant(True, "Use reentrant checkpointing")


def nonreentrant_checkpointing(run: RunSpec) -> Change | None:
    """The form that trains partly frozen models and works with RL's trainers."""
    return _reentrant(False, "Use non-reentrant checkpointing") if run.checkpointing_reentrant else None


def _reentrant(value: bool, title: str) -> Change:
    name = "reentrant-checkpointing" if value else "nonreentrant-checkpointing"
    why = "the same activations, recomputed from the same inputs by another path of autograd"
    return change(name, "same", title, why, checkpointing_reentrant=value)


def legacy_offloading(run: RunSpec) -> Change | None:
    """The older offloading has no tracker."""
    return change(
        "legacy-offloading",
        "changes",
        "Offload activations the older way",
        "another implementation of the same offloading",
        activation_offloading="legacy",
    )


# --- kernels -------------------------------------------------------------------------------------------------------


def fuse_loss(run: RunSpec) -> Change | None:
    """A loss that never holds tokens × vocabulary."""
    if run.loss_kernel not in ("stock", "chunked", "liger") or run.rl:
        return None
    return change(
        "fuse-loss",
        "rounding",
        "Compute the loss without holding the logits: Liger's fused linear cross entropy",
        "the same loss from the same hidden states, in chunks: rounding alone differs",
        loss_kernel="liger_fused_linear",
    )


def fused_attention(run: RunSpec) -> Change | None:
    """Attention that never writes out its scores."""
    if run.attn_implementation != "eager":
        return None
    return _sdpa("fused-attention", "Use an attention that never writes out its scores: sdpa")


def plain_attention(run: RunSpec) -> Change | None:
    """sdpa runs on every card and with every torch."""
    return None if run.attn_implementation == "sdpa" else _sdpa("plain-attention", "Use sdpa, which runs on every card")


def _sdpa(name: str, title: str) -> Change:
    return change(name, "rounding", title, _OTHER_KERNEL, attn_implementation="sdpa")


def flash_attention(run: RunSpec) -> Change | None:
    """FlashAttention 2, on a card that has it."""
    if run.attn_implementation == _FLASH or _before_ampere(run):
        return None
    return change("flash-attention", "rounding", f"Attend with {_FLASH}", _OTHER_KERNEL, attn_implementation=_FLASH)


def separate_samples(run: RunSpec) -> Change | None:
    """A backend that knows where packed samples begin."""
    if run.samples_apart:
        return None
    name = "sdpa" if _before_ampere(run) else _FLASH
    why = "packed samples no longer see one another: the model learns from other contexts"
    return change("separate-samples", "changes", f"Attend with {name}", why, attn_implementation=name)


def _before_ampere(run: RunSpec) -> bool:
    gpu = run.target.gpu
    return gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)


def compile_model(run: RunSpec) -> Change | None:
    """torch.compile fuses neighbours."""
    if run.torch_compile:
        return None
    why = "the same operations, fused: rounding alone differs, and compiling takes time"
    return change("compile-model", "rounding", "Compile the model", why, torch_compile=True)


def expandable_segments(run: RunSpec) -> Change | None:
    """Segments that grow."""
    if EXPANDABLE in run.allocator:
        return None
    why = "where bytes lie changes no number"
    return change("expandable-segments", "same", "Let segments grow: expandable segments", why, allocator=EXPANDABLE)


def empty_cache_at_eval(run: RunSpec) -> Change | None:
    """The cache is emptied before an evaluation and after it."""
    why = "where bytes lie changes no number"
    title = "Empty the cache around each evaluation"
    return change("empty-cache-at-eval", "same", title, why, empty_cache_at_eval=True)


# --- weights and states --------------------------------------------------------------------------------------------


def eight_bit_optimizer(run: RunSpec) -> Change | None:
    """States of one byte instead of two or four."""
    if run.optimizer not in _PLAIN_ADAM or run.sharding.startswith("fsdp") or run.offload_optimizer:
        return None
    return change(
        "eight-bit-optimizer",
        "changes",
        "Keep the optimizer's state in 8 bits",
        "moments are rounded to 8 bits at every step",
        optimizer="adamw_bnb_8bit",
    )


def unpaged_optimizer(run: RunSpec) -> Change | None:
    """The same optimizer without paging."""
    paged = run.optimizer.startswith("paged_")
    name = "adamw_torch_fused" if paged and "8bit" not in run.optimizer else "adamw_bnb_8bit"
    title = f"Use {name}, which does not page"
    return change("unpaged-optimizer", "changes", title, "another implementation", optimizer=name)


def handled_optimizer(run: RunSpec) -> Change | None:
    """torchao's optimizers under the names that are handled."""
    name = _HANDLED_NAMES.get(run.optimizer)
    if name is None:
        return None
    title = f"Use the name that the trainer handles: {name}"
    return change("handled-optimizer", "changes", title, "the run stops without it", optimizer=name)


def fused_adamw(run: RunSpec) -> Change | None:
    """The AdamW that every torch has."""
    name = "adamw_torch_fused"
    if run.optimizer == name:
        return None
    return change("fused-adamw", "changes", f"Train with AdamW: {name}", "another optimizer", optimizer=name)


def quantize_base(run: RunSpec) -> Change | None:
    """LoRA on a 4-bit base."""
    if run.adapter != "lora" or run.quantization:
        return None
    return change(
        "quantize-base",
        "changes",
        "Load the base in 4 bits: QLoRA",
        "the base's weights are rounded to 4 bits",
        adapter="qlora",
        quantization="4bit",
    )


# --- dtypes --------------------------------------------------------------------------------------------------------


def train_in_bf16(run: RunSpec) -> Change | None:
    """bf16 needs no scaler."""
    gpu = run.target.gpu
    if run.precision == "bf16" or (gpu is not None and gpu.known and not gpu.bf16):
        return None
    return change("train-in-bf16", "changes", "Train in bf16", "another number format", precision="bf16")


def let_card_choose(run: RunSpec) -> Change | None:
    """One file for every card."""
    if run.precision_by_card and run.precision == run.weights_dtype:
        return None
    title = "Let the card decide: bf16 where it has it, else fp16"
    return change("let-card-choose", "changes", title, "another number format", precision_by_card=True)


def train_without_bf16(run: RunSpec) -> Change | None:
    """For cards before Ampere: fp16 with an adapter, whose weights are fp32; a full fine-tune in fp16 fails, too."""
    title = "Use fp16 on this card" if run.adapter else "Train in fp32 on this card (fp16 needs an adapter)"
    precision = "fp16" if run.adapter else "fp32"
    return change("train-without-bf16", "changes", title, "another number format", precision=precision, tf32=False)


def pad_for_fp8(run: RunSpec) -> Change | None:
    """Token counts that divide by 64 divide by 16 and 32 too."""
    return change(
        "pad-for-fp8",
        "changes",
        "Pad to token counts that divide",
        "fp8 kernels take rows of a multiple of 16 alone",
        pad_to_sequence_len=True,
        pad_multiple=64,
    )


# --- several cards, saving, host -----------------------------------------------------------------------------------


def second_fsdp(run: RunSpec) -> Change | None:
    """FSDP2 shards each parameter by itself, whatever its dtype."""
    if run.sharding != "fsdp1":
        return None
    return change("second-fsdp", "changes", "Shard with FSDP2", "another sharding of the same model", sharding="fsdp2")


def shard_checkpoints(run: RunSpec) -> Change | None:
    """Each rank writes its own part."""
    if not run.sharding.startswith("fsdp"):
        return None
    why = "checkpoints are folders of shards: what reads them must know that"
    return change("shard-checkpoints", "changes", "Write sharded checkpoints", why, gathers_checkpoints=False)


def exchange_each_step(run: RunSpec) -> Change | None:
    """Gradients are sharded after every micro-step."""
    if not run.sharding.startswith("fsdp") or run.sync_each_batch:
        return None
    why = "the same gradients, summed in another order: rounding alone differs; more traffic between GPUs"
    title = "Exchange gradients at every micro-step"
    return change("exchange-each-step", "rounding", title, why, sync_each_batch=True)


def fewer_workers(run: RunSpec) -> Change | None:
    """Fewer batches ahead in host memory."""
    return change(
        "fewer-workers",
        "same",
        "Prefetch 8 batches with one worker",
        "the same batches, fewer of them ahead",
        loader_workers=1,
        loader_prefetch=8,
    )
