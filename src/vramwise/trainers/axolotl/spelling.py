"""Changes in Axolotl's words: a field of RunSpec with its new value → edits of the file, in the spelling it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.allocator.variables import export_line
from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.axolotl.plugins import LIGER, list_plugin, listed_plugins
from vramwise.trainers.axolotl.remedies import (
    choose_attention,
    choose_fsdp_version,
    choose_reentrant,
    written_key,
)
from vramwise.trainers.base import Spelling
from vramwise.types import Change, Edit, RunSpec

_RELATED = ("micro_batch_size", "gradient_accumulation_steps", "sequence_len", "optimizer", "base_model")
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
    return insert_key(key, value, beside=next((name for name in _RELATED if name in run.config), "base_model"))


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
    edits += [delete_key(key) for key in ("chunked_cross_entropy", "liger_cross_entropy") if key in run.config]
    return tuple(edits)


def _attention(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return choose_attention(run, value) or None


def _precision(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    keys = [key for key in ("fp16", "float16") if key in run.config]
    if value == "bf16":
        beside = keys[0] if keys else "base_model"
        return (insert_key("bf16", "auto", beside=beside), *(delete_key(key) for key in keys))
    edits = [insert_key("bf16", False, beside="base_model")]
    if value == "fp16":
        edits.append(insert_key("fp16", True, beside="bf16"))
    return tuple(edits)


def _tf32(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (set_key("tf32", value),) if run.config.get("tf32") else ()


def _quantization(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return (put(run, "load_in_4bit", True),) if value == "4bit" else None


def _pad_multiple(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (set_key("pad_to_multiple_of", value),) if run.config.get("pad_to_multiple_of") else ()


def _sharding(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return (choose_fsdp_version(run, 2),) if value == "fsdp2" else None


def _sharded_checkpoints(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    key, wanted = "fsdp_config.state_dict_type", "SHARDED_STATE_DICT"
    if run.config.get(key) == wanted:
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
        )
    },
    "loader_workers": _key("dataloader_num_workers"),
    "loader_prefetch": _prefetch,
    "eval_batch_size": _eval_batch,
    "automatic_batch": _automatic_batch,
    "loss_kernel": _loss_kernel,
    "attn_implementation": _attention,
    "precision": _precision,
    "tf32": _tf32,
    "quantization": _quantization,
    "pad_multiple": _pad_multiple,
    "sharding": _sharding,
    "sharded_checkpoints": _sharded_checkpoints,
    "checkpointing_reentrant": lambda run, value: (choose_reentrant(run, value),),
    "empty_cache_at_eval": _empty_cache,
}
