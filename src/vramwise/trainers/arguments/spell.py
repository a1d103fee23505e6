"""Changes as edits of TrainingArguments: a field of RunSpec with its new value → edits of the file.

A trainer adds its own spellers to `SPELLERS` and calls `spell_with`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers import spelling
from vramwise.trainers.arguments.trainer import trainer_of
from vramwise.trainers.arguments.vocabulary import training_arguments
from vramwise.trainers.base import Spelling
from vramwise.trainers.spelling import KWARGS, Speller, placed, reentrant, speller_by_key, tf32
from vramwise.types import Change, Edit, RunSpec, Stack, join_key, split_key

# The keys below which a new line is inserted.
_BESIDE = {
    "per_device_eval_batch_size": ("per_device_train_batch_size", "eval_strategy"),
    "gradient_accumulation_steps": ("per_device_train_batch_size",),
    "gradient_checkpointing": ("bf16", "fp16"),
    KWARGS: ("gradient_checkpointing",),
    "load_in_4bit": ("use_peft",),
    "pad_to_multiple_of": ("max_length", "packing"),
}
_RELATED = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "model_name_or_path")
# No argument lets the card choose, so the choice for this card is written.
_CHOSEN = {
    "bf16": "Train in bf16",
    "fp16": "Use fp16 on this card: fp16 true, bf16 false",
    "fp32": "Train in fp32 on this card: bf16 false (fp16 needs an adapter)",
}
_SYNCED = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
# The lines to write if there is no config.
WORDS: dict[str, tuple[str, ...]] = {
    "compile-model": ("torch_compile: true",),
    "smaller-micro-batch": ("per_device_train_batch_size: half of it", "gradient_accumulation_steps: twice as many"),
    "equal-eval-batch": ("per_device_eval_batch_size: the value of per_device_train_batch_size",),
    "no-automatic-batch": ("auto_find_batch_size: false",),
    "checkpoint-activations": ("gradient_checkpointing: true",),
    "reentrant-checkpointing": (f"{KWARGS}:", "  use_reentrant: true"),
    "fuse-loss": ("use_liger_kernel: true",),
    "fused-attention": ("attn_implementation: sdpa",),
    "plain-attention": ("attn_implementation: sdpa",),
    "eight-bit-optimizer": ("optim: adamw_bnb_8bit",),
    "unpaged-optimizer": ("optim: adamw_bnb_8bit",),
    "train-in-bf16": ("bf16: true", "fp16: (remove)"),
    "train-without-bf16": ("bf16: false", "fp16: true", "tf32: false"),
    "train-in-bf16-with-flash": ("bf16: true", "attn_implementation: flash_attention_2"),
    "empty-cache-at-eval": ("torch_empty_cache_steps: 1",),
    "shorten-rows": ("max_length: half of it",),
    "quantize-base": ("a LoRA adapter (peft)", "quantization_config: BitsAndBytesConfig(load_in_4bit=True)"),
    "second-fsdp": ("fsdp_config:", "  fsdp_version: 2"),
    "shard-checkpoints": ("fsdp_config:", "  state_dict_type: SHARDED_STATE_DICT"),
    "no-evaluation": ('eval_strategy: "no"',),
    "fewer-workers": ("dataloader_num_workers: 1", "dataloader_prefetch_factor: 8"),
}


def spell_with(spellers: Mapping[str, Speller], run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all fields of a change, or None; a choice by the card is titled by what is chosen."""
    found = spelling.spell_with(spellers, run, change)
    edits = None if found is None else _in_release(run, found.edits)
    if found is None or edits is None:
        return None
    title = _CHOSEN[_chosen(run)] if change.fields.get("precision_by_card") else found.title
    return replace(found, edits=edits, title=title)


def _in_release(run: RunSpec, edits: Sequence[Edit]) -> tuple[Edit, ...] | None:
    """Return edits with the names that the run's release has for new keys; None if it lacks one that others have."""
    trainer = trainer_of(run)
    if trainer is None or not any(one.op == "insert" for one in edits):
        return tuple(edits)
    document, stack = run.config.document, run.target.stack
    words = trainer.vocabulary(document, stack)
    newest = trainer.vocabulary(document, stack.at(trainer.package, list(trainer.releases())[-1]))
    newest = training_arguments(Stack(releases={})) | newest
    named: list[Edit] = []
    for one in edits:
        key = str(split_key(one.key)[0])
        if one.op == "insert" and key in newest and words.type_of(key) is None:
            return None
        old = words.named(key) if one.op == "insert" else key
        named.append(one if old == key else replace(one, key=old + one.key.removeprefix(key)))
    return tuple(named)


def put(run: RunSpec, key: str, value: object, *, beside: tuple[str, ...] = ()) -> Edit:
    """Set the key, or insert it beside a related one."""
    return placed(run, key, value, (*beside, *_BESIDE.get(key, ()), *_RELATED), _any_key(run))


def _any_key(run: RunSpec) -> str:
    return next((join_key((key,)) for key in run.config.document.values if isinstance(key, str)), "")


key_speller = partial(speller_by_key, put)


def _precision(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set bf16 and fp16, which are separate switches: one on, the other off."""
    if value == "fp8":
        return None
    on = {"bf16": value == "bf16", "fp16": value == "fp16"}
    edits = [
        put(run, key, wanted) for key, wanted in on.items() if wanted or run.config.get(key) or _defaults_on(run, key)
    ]
    return tuple(edits) or None


def _defaults_on(run: RunSpec, key: str) -> bool:
    """Whether the switch is on without being written: TRL's bf16."""
    return run.precision.compute == key and run.config.get(key) is None


def _by_card(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """No argument lets the card decide, so the target card's choice is written."""
    if not value or (run.precision.compute == "fp32" and run.target.gpu is None):
        return None
    return _precision(run, _chosen(run))


def _chosen(run: RunSpec) -> str:
    """Return what a choice by the card means on the target card."""
    gpu = run.target.gpu
    return "bf16" if gpu is None or gpu.bf16 else "fp16" if run.adapter.kind else "fp32"


def _as_written(run: RunSpec, key: str) -> str:
    """The name of a checkpointing argument that the file uses: transformers 5.23 has newer ones, which count first."""
    newer = key.replace("gradient", "activation")
    return newer if run.config.get(newer) is not None else key


def _checkpointing(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (put(run, _as_written(run, "gradient_checkpointing"), value),)


def _reentrant(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    kwargs = _as_written(run, KWARGS)
    return (reentrant(run, value, put(run, kwargs, {"use_reentrant": value}), kwargs),)


def _exchange(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if not value or run.config.get("accelerator_config") is not None:
        return None
    return (put(run, "accelerator_config", _SYNCED),)


def _automatic_batch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (delete_key("auto_find_batch_size"),)


def _optimizer(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """One that this version of transformers knows."""
    if training_arguments(run.target.stack).check("optim", value) is not None:
        return None
    return (put(run, "optim", value),)


def _loss_kernel(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Liger's loss comes with its other kernels."""
    if value != "liger_fused_linear" or run.config.get("liger_kernel_config") is not None:
        return None
    return (put(run, "use_liger_kernel", True),)


def _prefetch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (put(run, "dataloader_prefetch_factor", value, beside=("dataloader_num_workers",)),)


def _checkpoints(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    key, block = "fsdp_config.state_dict_type", run.config.get("fsdp_config")
    if value or not isinstance(block, dict) or not block or block.get("state_dict_type") == "SHARDED_STATE_DICT":
        return None
    if key in run.config:
        return (set_key(join_key(run.config.path(key)), "SHARDED_STATE_DICT"),)
    return (insert_key(key, "SHARDED_STATE_DICT", beside="fsdp_config"),)


def _evaluates(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Turn evaluation off; what holds samples out, and when it would evaluate, may stay."""
    return None if value else (put(run, "eval_strategy", "no"),)


SPELLERS: dict[str, Speller] = {
    "micro_batch_size": key_speller("per_device_train_batch_size"),
    "gradient_accumulation_steps": key_speller("gradient_accumulation_steps"),
    "eval_batch_size": key_speller("per_device_eval_batch_size"),
    "gradient_checkpointing": _checkpointing,
    "checkpointing_reentrant": _reentrant,
    "optimizer": _optimizer,
    "torch_compile": key_speller("torch_compile"),
    "precision": _precision,
    "loss_kernel": _loss_kernel,
    "precision_by_card": _by_card,
    "tf32": tf32,
    "sync_each_batch": _exchange,
    "automatic_batch": _automatic_batch,
    "gathers_checkpoints": _checkpoints,
    "evaluates": _evaluates,
    "loader_workers": key_speller("dataloader_num_workers"),
    "loader_prefetch": _prefetch,
}
