"""Writes new configs for Axolotl: the requested settings, the data and the schedule."""

from __future__ import annotations

from typing import Any

from vramwise.errors import VramwiseError
from vramwise.trainers.axolotl.compose import compose
from vramwise.trainers.axolotl.spell.sharding import FETCH
from vramwise.trainers.starting import Source, Start
from vramwise.types import RunSpec

GROUPS: tuple[tuple[str, ...], ...] = (
    (
        *("base_model", "adapter", "load_in_4bit", "quantize_moe_experts", "lora_r", "lora_alpha"),
        *("lora_target_linear", "lora_target_modules"),
    ),
    ("rl", "datasets", "chat_template", "val_set_size", "output_dir"),
    ("sequence_len", "sample_packing", "pad_to_sequence_len"),
    ("micro_batch_size", "gradient_accumulation_steps", "eval_batch_size", "num_epochs"),
    ("optimizer", "learning_rate", "lr_scheduler", "warmup_ratio"),
    ("bf16", "fp16", "attn_implementation", "gradient_checkpointing"),
    ("logging_steps", "evals_per_epoch", "saves_per_epoch", "save_total_limit"),
)
_PRECISION: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": "auto"},
    "fp16": {"bf16": False, "fp16": True},
    "fp32": {"bf16": False, "fp16": False},
}
# The tokenizer's own template, with a fallback, because base models often have none.
_TEMPLATE = "tokenizer_default_fallback_chatml"


def start(start: Start) -> dict[str, Any]:
    """Return every value of the config."""
    values = compose(start.wishes)
    if start.preference:
        values["rl"] = "dpo"
        values.pop("sample_packing", None)
    source = start.source
    values["datasets"] = [_dataset(source)]
    if source.format == "chat" or (start.preference and source.turns):
        values["chat_template"] = _TEMPLATE
    if start.held_out:
        values |= {"val_set_size": start.held_out, "evals_per_epoch": 2}
    values |= {
        "output_dir": start.output_dir,
        "num_epochs": start.epochs,
        "learning_rate": start.learning_rate,
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.03,
        **_PRECISION[start.precision],
        "logging_steps": 10,
        "saves_per_epoch": 1,
        "save_total_limit": 2,
    }
    if values.get("sample_packing"):
        values["pad_to_sequence_len"] = True
    return values


def _dataset(source: Source) -> dict[str, Any]:
    block: dict[str, Any] = {"path": source.path}
    if not source.folder and not source.placeholder:
        block["ds_type"] = source.kind
    return {**block, **_TYPES[source.format](source)}


def _alpaca(source: Source) -> dict[str, Any]:
    names = {name: source.column(name) for name in ("instruction", "input", "output")}
    if all(name == column for name, column in names.items()):
        return {"type": "alpaca"}
    return {"type": {f"field_{name}": column for name, column in names.items()}}


def _chat(source: Source) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "chat_template", "field_messages": source.column("messages")}
    if (source.role, source.content) != ("role", "content"):
        block["message_property_mappings"] = {"role": source.role, "content": source.content}
    return block


def _prompt(source: Source) -> dict[str, Any]:
    if source.turns:
        raise VramwiseError(
            "Axolotl does not read prompts and completions that are lists of messages: join them in a `messages` column"
        )
    return {
        "type": {
            "field_instruction": source.column("prompt"),
            "field_output": source.column("completion"),
            "format": "{instruction}",
            "no_input_format": "{instruction}",
        }
    }


def _pairs(source: Source) -> dict[str, Any]:
    fields = {f"field_{name}": source.column(name) for name in ("chosen", "rejected")}
    if source.shared_turns:
        return {"type": "chat_template.argilla_chat", **fields}
    if source.turns:
        return {"type": "chat_template.default", "field_messages": source.column("prompt"), **fields}
    return {"type": "user_defined.default", "field_prompt": source.column("prompt"), **fields}


def _text(source: Source) -> dict[str, Any]:
    return {"type": "completion", "field": source.column("text")}


_TYPES = {"alpaca": _alpaca, "chat": _chat, "prompt": _prompt, "pairs": _pairs, "text": _text}


def companions(start: Start) -> dict[str, str]:
    """Return nothing: the config names its data."""
    return {}


def requirements(start: Start) -> tuple[str, ...]:
    """Return nothing."""
    return ()


def launch(run: RunSpec, path: str) -> str:
    """Return the launch command; `axolotl train` starts a process for each GPU itself."""
    fetch = f"{FETCH} && " if run.sharding.is_zero else ""
    return f"{fetch}axolotl train {path}"
