"""Changes in Axolotl's words: a field of RunSpec with its new value → edits of the file, in the spelling it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.allocator.variables import export_line
from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.axolotl.attention import LEGACY_FLAGS
from vramwise.trainers.axolotl.plugins import LIGER, list_plugin, listed_plugins
from vramwise.trainers.axolotl.remedies import (
    PREFERENCE_TRAINING,
    choose_fsdp_version,
    choose_reentrant,
    written_key,
)
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.trainers.base import Spelling
from vramwise.types import Change, Edit, RunSpec

_RELATED = ("micro_batch_size", "gradient_accumulation_steps", "sequence_len", "optimizer", "base_model")
# What a new line is best written below, where the general list has nothing closer.
_BESIDE = {
    "pad_to_sequence_len": ("sequence_len", "sample_packing"),
    "gradient_checkpointing": ("activation_offloading", "selective_checkpointing", "bf16"),
    "gradient_accumulation_steps": ("micro_batch_size",),
    "attn_implementation": ("sample_packing", "context_parallel_size", "sequence_parallel_degree"),
    "torch_compile": ("fp8",),
    "accelerator_config": ("gradient_accumulation_steps",),
    "load_in_4bit": ("adapter",),
}
_FP8 = ("fp8", "fp8_config", "fp8_enable_fsdp_float8_all_gather")
_SYNCED = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
# The lines to write where no config is at hand.
WORDS: dict[str, tuple[str, ...]] = {
    "smaller-micro-batch": ("micro_batch_size: half of it", "gradient_accumulation_steps: twice as many"),
    "equal-eval-batch": ("eval_batch_size: the value of micro_batch_size",),
    "no-automatic-batch": ("auto_find_batch_size: (remove)", "eval_batch_size: 1"),
    "checkpoint-activations": ("gradient_checkpointing: true",),
    "pad-rows": ("pad_to_sequence_len: true",),
    "shorten-rows": ("sequence_len: half of it",),
    "reentrant-checkpointing": ("gradient_checkpointing_kwargs:", "  use_reentrant: true"),
    "legacy-offloading": ("activation_offloading: legacy",),
    "fuse-loss": ("plugins:", f"  - {LIGER}", "liger_fused_linear_cross_entropy: true"),
    "fused-attention": ("attn_implementation: sdpa",),
    "plain-attention": ("attn_implementation: sdpa",),
    "empty-cache-at-eval": ("gc_steps: -1",),
    "eight-bit-optimizer": ("optimizer: adamw_bnb_8bit",),
    "unpaged-optimizer": ("optimizer: adamw_bnb_8bit",),
    "handled-optimizer": ("optimizer: adamw_torch_8bit (or adamw_torch_4bit)",),
    "quantize-base": ("adapter: qlora", "load_in_4bit: true"),
    "train-in-bf16": ("bf16: auto", "fp16: (remove)"),
    "train-in-bf16-with-flash": ("bf16: auto", "attn_implementation: flash_attention_2"),
    "train-without-bf16": ("bf16: false", "fp16: true", "tf32: false"),
    "pad-for-fp8": ("pad_to_sequence_len: true",),
    "second-fsdp": ("fsdp_version: 2",),
    "shard-checkpoints": ("fsdp_config:", "  state_dict_type: SHARDED_STATE_DICT"),
    "fewer-workers": ("dataloader_num_workers: 1", "dataloader_prefetch_factor: 8"),
}
Speller = Callable[[RunSpec, Any], tuple[Edit, ...] | None]


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """All fields of a change, or None where one of them has no word here."""
    edits: list[Edit] = []
    command = ""
    for field, value in change.fields.items():
        if field == "allocator":
            command = export_line(run.target.torch)
            continue
        speller = _SPELLERS.get(field)
        spelt = speller(run, value) if speller else None
        if spelt is None:
            return None
        edits += spelt
    return Spelling(edits=tuple(edits), command=command) if edits or command else None


def put(run: RunSpec, key: str, value: object) -> Edit:
    """Set the key as the file spells it, or insert it beside a related one."""
    if key in run.config:
        return set_key(written_key(run, key), value)
    related = (*_BESIDE.get(key, ()), *_RELATED)
    return insert_key(key, value, beside=next((name for name in related if name in run.config), "base_model"))


def _key(name: str) -> Speller:
    """A field that has a key of its own."""

    def speller(run: RunSpec, value: Any) -> tuple[Edit, ...]:
        return (put(run, name, value),)

    return speller


def _eval_batch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Unset it follows the micro-batch by itself."""
    return (put(run, "eval_batch_size", value),) if "eval_batch_size" in run.config else ()


def _automatic_batch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (delete_key("auto_find_batch_size"), put(run, "eval_batch_size", run.micro_batch_size))


def _loss_kernel(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value != "liger_fused_linear":
        return None
    plugin = list_plugin(run, LIGER, beside="base_model")
    if plugin is None and LIGER not in listed_plugins(run):
        return None  # what stands under `plugins` is no list
    edits = [] if plugin is None else [plugin]
    edits.append(insert_key("liger_fused_linear_cross_entropy", True, beside="plugins"))
    edits += [delete_key(key) for key in ("chunked_cross_entropy", "liger_cross_entropy") if run.config.get(key)]
    return tuple(edits)


def _attention(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """`attn_implementation`, in place of an old flag if one decided; None where another key refuses the backend."""
    key = run.origins["attn_implementation"].key
    if value == "sdpa" and _bound_to_flash(run):
        return None
    if key in (None, "attn_implementation"):
        return (put(run, "attn_implementation", value),)
    if key in LEGACY_FLAGS:
        return (insert_key("attn_implementation", value, beside=key), delete_key(key))
    return None


def _bound_to_flash(run: RunSpec) -> bool:
    """Gemma 4's hybrid and flattened batches do not run on sdpa, nor does context parallelism up to 0.19."""
    flattened = run.config.get("batch_flattening") is True
    ring = run.context_parallel_size > 1 and not schema_of(run).since("0.20.0")
    return ring or bool(run.config.get("gemma4_hybrid_attn_impl")) or flattened


def _precision(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value == "bf16":
        keys = [key for key in ("fp16", "float16") if key in run.config]
        dropped = tuple(delete_key(key) for key in (*keys, *_FP8) if key in run.config)
        if run.precision == "fp8" and run.weights_dtype == "bf16":
            return dropped  # bf16 is on already, below fp8
        return (insert_key("bf16", "auto", beside=keys[0] if keys else "base_model"), *dropped)
    edits = [insert_key("bf16", False, beside="base_model")]
    if value == "fp16":
        edits.append(insert_key("fp16", True, beside="bf16"))
    return tuple(edits)


def _by_card(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """`bf16: auto`, which is also what an absent key means."""
    if not value:
        return None
    dropped = [key for key in ("bfloat16", *_FP8) if run.config.get(key)]
    if "bf16" in run.config:
        edits = [set_key("bf16", "auto")]
    else:
        edits = [insert_key("bf16", "auto", beside="bfloat16")] if "bfloat16" in dropped else []
    return (*edits, *(delete_key(key) for key in dropped)) or None


def _tf32(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (set_key("tf32", value),) if run.config.get("tf32") else ()


def _quantization(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return (put(run, "load_in_4bit", True),) if value == "4bit" else None


def _pad_multiple(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (set_key("pad_to_multiple_of", value),) if run.config.get("pad_to_multiple_of") else ()


def _sharding(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """FSDP2; None where it is refused: preference training on a quantised base."""
    quantised = run.config.get("load_in_4bit") or run.config.get("load_in_8bit")
    if value != "fsdp2" or (quantised and run.rl in PREFERENCE_TRAINING):
        return None
    return (choose_fsdp_version(run, 2),)


def _exchange(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if not value or run.config.get("accelerator_config") is not None:
        return None
    return (put(run, "accelerator_config", _SYNCED),)


def _reentrant(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Partly frozen models and distributed RL with QLoRA refuse the reentrant form."""
    distributed_rl = run.rl is not None and run.quantization == "4bit" and run.gpus > 1
    if value and (distributed_rl or run.config.get("unfrozen_parameters")):
        return None
    return (choose_reentrant(run, value),)


def _checkpoints(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    key, wanted = "fsdp_config.state_dict_type", "SHARDED_STATE_DICT"
    if value or run.config.get(key) == wanted:
        return None
    if key in run.config:
        return (set_key(written_key(run, key), wanted),)
    return (insert_key(key, wanted, beside="fsdp_config"),)


def _empty_cache(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return None if run.config.get("gc_steps") else (put(run, "gc_steps", -1),)


def _prefetch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (insert_key("dataloader_prefetch_factor", value, beside="dataloader_num_workers"),)


_SPELLERS: dict[str, Speller] = {
    **{
        name: _key(name)
        for name in (
            "micro_batch_size",
            "gradient_accumulation_steps",
            "gradient_checkpointing",
            "pad_to_sequence_len",
            "sequence_len",
            "optimizer",
            "adapter",
            "activation_offloading",
            "torch_compile",
        )
    },
    "loader_workers": _key("dataloader_num_workers"),
    "loader_prefetch": _prefetch,
    "eval_batch_size": _eval_batch,
    "automatic_batch": _automatic_batch,
    "loss_kernel": _loss_kernel,
    "attn_implementation": _attention,
    "precision": _precision,
    "precision_by_card": _by_card,
    "tf32": _tf32,
    "quantization": _quantization,
    "pad_multiple": _pad_multiple,
    "sharding": _sharding,
    "gathers_checkpoints": _checkpoints,
    "sync_each_batch": _exchange,
    "checkpointing_reentrant": _reentrant,
    "empty_cache_at_eval": _empty_cache,
}
