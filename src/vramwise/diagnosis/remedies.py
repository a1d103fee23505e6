"""Changes of a config that save memory or mend a dtype, each for the config at hand; None where it does not apply.

Which remedy suits which cause is `advice`'s business. Without a config a remedy names the keys to set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vramwise.diagnosis.evidence import Remedy
from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.trainers.axolotl.remedies import choose_attention, choose_fsdp_version, choose_reentrant, written_key
from vramwise.types import Edit, RunSpec

Build = Callable[[RunSpec | None], Remedy | None]
_LIGER = "axolotl.integrations.liger.LigerPlugin"
_PLAIN_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_torch_xla", "adamw_apex_fused")


def halve_micro_batch(run: RunSpec | None) -> Remedy | None:
    """Half the micro-batch, twice the accumulation: the effective batch stays."""
    if run is None:
        return Remedy(
            title="Halve micro_batch_size and double gradient_accumulation_steps: same effective batch",
            keys=("micro_batch_size: half of it", "gradient_accumulation_steps: twice as many"),
        )
    return next(smaller_micro_batches(run), None)


def smaller_micro_batches(run: RunSpec) -> Iterator[Remedy]:
    """Every smaller micro-batch that keeps the effective batch, the largest first."""
    micro, steps = run.micro_batch_size, run.gradient_accumulation_steps
    for smaller in range(micro // 2, 0, -1):
        if micro % smaller:
            continue
        more = steps * (micro // smaller)
        edits = [_put(run, "micro_batch_size", smaller), _put(run, "gradient_accumulation_steps", more)]
        if run.evaluates and "eval_batch_size" in run.config:
            edits.append(set_key("eval_batch_size", smaller))
        title = f"Micro-batch {micro} → {smaller}, accumulation {steps} → {more}: same effective batch"
        yield _remedy(safe(title, *edits))


def checkpoint_activations(run: RunSpec | None) -> Remedy | None:
    """Recompute instead of keeping."""
    title = "Recompute activations: gradient_checkpointing"
    if run is None:
        return Remedy(title=title, keys=("gradient_checkpointing: true",))
    if run.recompute or run.activation_offloading != "off" or "mpt" in (run.base_model or "").lower():
        return None
    return _remedy(safe(title, _put(run, "gradient_checkpointing", True)))


def fuse_loss(run: RunSpec | None) -> Remedy | None:
    """A loss that never holds tokens × vocabulary."""
    title = "Compute the loss without holding the logits: Liger's fused linear cross entropy"
    keys = ("plugins:", f"  - {_LIGER}", "liger_fused_linear_cross_entropy: true")
    if run is None:
        return Remedy(title=title, keys=keys)
    if run.loss_kernel not in ("stock", "chunked", "liger") or run.rl:
        return None
    edits: list[Edit] = []
    plugins = run.config.get("plugins")
    if not isinstance(plugins, list):
        edits.append(_put(run, "plugins", [_LIGER]))
    elif _LIGER not in plugins:
        edits.append(insert_key(f"plugins.{len(plugins)}", _LIGER, beside="plugins"))
    edits.append(insert_key("liger_fused_linear_cross_entropy", True, beside="plugins"))
    edits += [delete_key(key) for key in ("chunked_cross_entropy", "liger_cross_entropy") if key in run.config]
    return _remedy(unsafe(title, *edits))


def eight_bit_optimizer(run: RunSpec | None) -> Remedy | None:
    """States of one byte instead of two or four."""
    title = "Keep the optimizer's state in 8 bits"
    if run is None:
        return Remedy(title=title, keys=("optimizer: adamw_bnb_8bit",))
    if run.optimizer not in _PLAIN_ADAM or run.sharding.startswith("fsdp") or run.offload_optimizer:
        return None
    return _remedy(unsafe(title, _put(run, "optimizer", "adamw_bnb_8bit")))


def equal_eval_batch(run: RunSpec | None) -> Remedy | None:
    """Evaluate in the shapes of training."""
    title = "Evaluate at the training micro-batch"
    if run is None:
        return Remedy(title=title, keys=("eval_batch_size: the value of micro_batch_size",))
    if run.eval_batch_size in (None, run.micro_batch_size):
        return None
    return _remedy(
        safe(f"{title}: eval_batch_size {run.micro_batch_size}", set_key("eval_batch_size", run.micro_batch_size))
    )


def collect_garbage_at_eval(run: RunSpec | None) -> Remedy | None:
    """Axolotl empties the cache before an evaluation and after it."""
    title = "Empty the cache around each evaluation: gc_steps -1"
    if run is None:
        return Remedy(title=title, keys=("gc_steps: -1",))
    return None if run.config.get("gc_steps") else _remedy(safe(title, _put(run, "gc_steps", -1)))


def pad_to_length(run: RunSpec | None) -> Remedy | None:
    """Constant shapes."""
    title = "Give every batch the same shape: pad_to_sequence_len"
    if run is None:
        return Remedy(title=title, keys=("pad_to_sequence_len: true",))
    return None if run.constant_shapes or run.rl else _remedy(safe(title, _put(run, "pad_to_sequence_len", True)))


def fused_attention(run: RunSpec | None) -> Remedy | None:
    """Attention that never writes out its scores."""
    title = "Use an attention that never writes out its scores: sdpa"
    if run is None:
        return Remedy(title=title, keys=("attn_implementation: sdpa",))
    edits = choose_attention(run, "sdpa")
    return _remedy(unsafe(title, *edits)) if edits and run.attn_implementation == "eager" else None


def shorten(run: RunSpec | None) -> Remedy | None:
    """The last resort: shorter rows."""
    if run is None:
        return Remedy(title="Shorten the rows (drops or cuts long samples)", keys=("sequence_len: half of it",))
    if run.sequence_len < 1024:
        return None
    half = run.sequence_len // 2
    title = f"Rows of {half} tokens instead of {run.sequence_len} (drops or cuts long samples)"
    return _remedy(unsafe(title, _put(run, "sequence_len", half)))


def quantize_base(run: RunSpec | None) -> Remedy | None:
    """LoRA on a 4-bit base."""
    title = "Load the base in 4 bits: QLoRA"
    if run is None:
        return Remedy(title=title, keys=("adapter: qlora", "load_in_4bit: true"))
    if run.adapter != "lora" or run.quantization:
        return None
    return _remedy(unsafe(title, set_key("adapter", "qlora"), _put(run, "load_in_4bit", True)))


def shard_checkpoints(run: RunSpec | None) -> Remedy | None:
    """Each rank writes its own part."""
    title = "Write sharded checkpoints"
    if run is None:
        return Remedy(title=title, keys=("fsdp_config:", "  state_dict_type: SHARDED_STATE_DICT"))
    if not run.sharding.startswith("fsdp") or run.config.get("fsdp_config.state_dict_type") == "SHARDED_STATE_DICT":
        return None
    key = "fsdp_config.state_dict_type"
    edit = (
        set_key(written_key(run, key), "SHARDED_STATE_DICT")
        if key in run.config
        else insert_key(key, "SHARDED_STATE_DICT", beside="fsdp_config")
    )
    return _remedy(unsafe(title, edit))


def train_in_bf16(run: RunSpec | None) -> Remedy | None:
    """bf16 needs no scaler."""
    if run is None:
        return Remedy(title="Train in bf16", keys=("bf16: auto", "fp16: (remove)"))
    keys = [key for key in ("fp16", "float16") if key in run.config]
    gpu = run.target.gpu
    if run.precision == "bf16" or (gpu is not None and gpu.known and not gpu.bf16):
        return None
    beside = keys[0] if keys else "base_model"
    return _remedy(
        unsafe("Train in bf16", insert_key("bf16", "auto", beside=beside), *(delete_key(key) for key in keys))
    )


def train_without_bf16(run: RunSpec | None) -> Remedy | None:
    """For cards before Ampere: fp16 with an adapter, whose weights are fp32; a full fine-tune in fp16 fails, too."""
    if run is None:
        return Remedy(
            title="Use fp16 on this card (with an adapter; else fp32), and no tf32",
            keys=("bf16: false", "fp16: true", "tf32: false"),
        )
    edits = [insert_key("bf16", False, beside="base_model")]
    if run.adapter:
        edits.append(insert_key("fp16", True, beside="bf16"))
    edits += [set_key("tf32", False)] if run.config.get("tf32") else []
    title = "Use fp16 on this card" if run.adapter else "Train in fp32 on this card (fp16 needs an adapter)"
    return _remedy(unsafe(title, *edits))


def flash_attention(run: RunSpec | None) -> Remedy | None:
    """With flash attention Axolotl casts norms and embeddings back to bf16."""
    if run is None:
        return Remedy(
            title="Train in bf16 and let the trainer cast norms and embeddings",
            keys=("bf16: auto", "attn_implementation: flash_attention_2"),
        )
    return train_in_bf16(run)


def no_flash_attention(run: RunSpec | None) -> Remedy | None:
    """sdpa runs on every card."""
    if run is None:
        return Remedy(title="Use sdpa on this card", keys=("attn_implementation: sdpa",))
    edits = choose_attention(run, "sdpa")
    return _remedy(unsafe("Use sdpa on this card", *edits)) if edits else None


def second_fsdp(run: RunSpec | None) -> Remedy | None:
    """FSDP2 shards each parameter by itself, whatever its dtype."""
    if run is None:
        return Remedy(title="Shard with FSDP2, which keeps each parameter's own dtype", keys=("fsdp_version: 2",))
    return None if run.sharding != "fsdp1" else _remedy(unsafe("Shard with FSDP2", choose_fsdp_version(run, 2)))


def reentrant(run: RunSpec | None) -> Remedy | None:
    """Reentrant checkpointing recomputes as forward did."""
    title = "Use reentrant checkpointing"
    if run is None:
        return Remedy(title=title, keys=("gradient_checkpointing_kwargs:", "  use_reentrant: true"))
    return None if run.checkpointing_reentrant else _remedy(unsafe(title, choose_reentrant(run, True)))


def pad_for_fp8(run: RunSpec | None) -> Remedy | None:
    """Token counts that divide by 64 divide by 16 and 32 too."""
    title = "Pad to token counts that divide"
    if run is None:
        return Remedy(title=title, keys=("pad_to_sequence_len: true",))
    edits = [_put(run, "pad_to_sequence_len", True)]
    edits += [set_key("pad_to_multiple_of", 64)] if run.config.get("pad_to_multiple_of") else []
    return _remedy(unsafe(title, *edits))


def no_auto_batch(run: RunSpec | None) -> Remedy | None:
    """A batch that is written stays as it is."""
    if run is None:
        return Remedy(title="Set the batches yourself", keys=("auto_find_batch_size: (remove)", "eval_batch_size: 1"))
    key = "auto_find_batch_size"
    return _remedy(
        unsafe(
            f"Remove {key} and evaluate at the micro-batch",
            delete_key(key),
            _put(run, "eval_batch_size", run.micro_batch_size),
        )
    )


def fewer_workers(run: RunSpec | None) -> Remedy | None:
    """Fewer batches ahead in host memory."""
    title = "Prefetch 8 batches with one worker"
    if run is None:
        return Remedy(title=title, keys=("dataloader_num_workers: 1", "dataloader_prefetch_factor: 8"))
    return _remedy(
        safe(
            title,
            _put(run, "dataloader_num_workers", 1),
            insert_key("dataloader_prefetch_factor", 8, beside="dataloader_num_workers"),
        )
    )


def legacy_offloading(run: RunSpec | None) -> Remedy | None:
    """The older offloading has no tracker."""
    title = "Offload activations the older way"
    return (
        Remedy(title=title, keys=("activation_offloading: legacy",))
        if run is None
        else _remedy(unsafe(title, _put(run, "activation_offloading", "legacy")))
    )


def known_optimizer(run: RunSpec | None) -> Remedy | None:
    """torchao's optimizers under the names that are handled."""
    title = "Use the name that the trainer handles"
    names = {
        "ao_adamw_4bit": "adamw_torch_4bit",
        "ao_adamw_8bit": "adamw_torch_8bit",
        "ao_adamw_fp8": "adamw_torch_fp8",
    }
    if run is None or run.optimizer not in names:
        return Remedy(title=title, keys=("optimizer: adamw_torch_8bit (or adamw_torch_4bit)",))
    return _remedy(unsafe(title, set_key("optimizer", names[run.optimizer])))


def unpaged_optimizer(run: RunSpec | None) -> Remedy | None:
    """The same optimizer without paging."""
    if run is None or not run.optimizer.startswith("paged_"):
        return Remedy(title="Use an optimizer without paging", keys=("optimizer: adamw_bnb_8bit",))
    name = "adamw_bnb_8bit" if "8bit" in run.optimizer else "adamw_torch_fused"
    return _remedy(unsafe(f"Use {name}, which does not page", set_key("optimizer", name)))


def _put(run: RunSpec, key: str, value: object) -> Edit:
    """Set the key as the file spells it, or insert it beside a related one."""
    if key in run.config:
        return set_key(written_key(run, key), value)
    related = ("micro_batch_size", "gradient_accumulation_steps", "sequence_len", "optimizer", "base_model")
    return insert_key(key, value, beside=next((name for name in related if name in run.config), "base_model"))


def _remedy(fix: object) -> Remedy:
    from vramwise.types import Fix

    assert isinstance(fix, Fix)
    return Remedy(title=fix.title, fix=fix)
