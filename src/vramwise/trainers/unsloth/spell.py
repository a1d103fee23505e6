"""Changes as edits for Unsloth: arguments of its calls in a script, keys of sections in its command's file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.rules.base import insert_key, set_key
from vramwise.trainers.arguments.spell import put
from vramwise.trainers.base import Spelling
from vramwise.trainers.spelling import Speller, spell_with
from vramwise.trainers.trl.spell import SPELLERS as TRLS
from vramwise.trainers.trl.spell import WORDS as TRL_WORDS
from vramwise.trainers.unsloth.keys import CLI_KEYS, is_cli
from vramwise.types import Change, Edit, RunSpec

_GC = "use_gradient_checkpointing"
WORDS: dict[str, tuple[str, ...]] = {
    **TRL_WORDS,
    "checkpoint-activations": ('use_gradient_checkpointing = "unsloth"',),
    "offload-layer-inputs": ('use_gradient_checkpointing = "unsloth"',),
    "quantize-base": ("load_in_4bit = True",),
    "shorten-rows": ("max_seq_length: half of it",),
    "eight-bit-optimizer": ('optim = "adamw_8bit"',),
    "load-in-bf16": ("dtype = torch.bfloat16",),
    "expandable-segments": ("import unsloth before torch: it sets expandable segments",),
}
_IN_SECTIONS = {key: (section, name) for (section, name), key in CLI_KEYS.items()}


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all fields of a change, or None if one has no key."""
    spelling = spell_with(SPELLERS, run, change)
    if spelling is None or not is_cli(run.config.document):
        return spelling
    edits = [_in_section(run, edit) for edit in spelling.edits]
    found = tuple(edit for edit in edits if edit is not None)
    return None if len(found) < len(edits) else replace(spelling, edits=found)


def _in_section(run: RunSpec, edit: Edit) -> Edit | None:
    """Return the same edit of the file's own key; None if its command has no key for it."""
    key = edit.key
    if key.partition(".")[0] in ("model", "data", "training", "lora", "logging"):
        return edit
    if key not in _IN_SECTIONS:
        return None
    section, name = _IN_SECTIONS[key]
    value = _as_file(key, edit.value)
    inside = run.config.document.values.get(section)
    if not isinstance(inside, dict) or not inside:
        return insert_key(section, {name: value}, beside=next(iter(run.config.document.values)))
    if name in inside:
        return set_key(f"{section}.{name}", value)
    return insert_key(f"{section}.{name}", value, beside=f"{section}.{next(iter(inside))}")


def _as_file(key: str, value: Any) -> Any:
    if key == "lora_target_modules" and isinstance(value, list):
        return ",".join(value)
    return {True: "true", False: "none"}.get(value, value) if key == _GC else value


def _checkpointing(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Set Unsloth's own checkpointing, which offloads inputs to host memory and is the default."""
    return (put(run, _GC, "unsloth" if value else False, beside=("lora_r", "lora_dropout", "max_seq_length")),)


def _offloading(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    words = {"staged": "unsloth", "off": run.savings.recompute}
    if value not in words:
        return None
    return (put(run, _GC, words[value], beside=("lora_r", "max_seq_length")),)


def _nothing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return ()


def _never(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return None


def _quantization(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value != "4bit" or run.adapter.kind is None:
        return None
    others = [key for key in ("load_in_8bit", "load_in_16bit") if run.config.get(key)]
    return (put(run, "load_in_4bit", True, beside=("max_seq_length",)), *(set_key(key, False) for key in others))


def _adapter(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Return no edits for an existing adapter; None otherwise, because a script without one has no call for it."""
    return () if value in ("lora", "qlora") and run.adapter.kind is not None else None


def _length(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if run.objective.generation_rows is not None:
        return None
    edits = [put(run, "max_seq_length", value)]
    written = run.config.get("max_length")
    if isinstance(written, int) and written > value:
        edits.append(put(run, "max_length", value))
    return tuple(edits)


def _packing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if run.objective.kind != "tokens" or run.objective.rl:
        return None
    return (put(run, "packing", value, beside=("max_length", "max_seq_length")),)


def _weights(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Return None: weights and products have one dtype, which the card decides."""
    return None


SPELLERS: dict[str, Speller] = {
    **TRLS,
    "gradient_checkpointing": _checkpointing,
    "recompute": _nothing,
    "checkpointing_reentrant": _nothing,
    "activation_offloading": _offloading,
    "attn_implementation": _never,
    "liger": _never,
    "sharding": _never,
    "pad_to_sequence_len": _never,
    "quantization": _quantization,
    "adapter": _adapter,
    "sequence_len": _length,
    "sample_packing": _packing,
    "weights_dtype": _weights,
    "precision": _never,
    "precision_by_card": _never,
}
del SPELLERS["allocator"]
