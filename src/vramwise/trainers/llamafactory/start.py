"""Writes new configs for LLaMA-Factory: the requested settings, the data by name, the schedule."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.trainers.llamafactory.compose import compose
from vramwise.trainers.starting import Source, Start
from vramwise.types import RunSpec

GROUPS: tuple[tuple[str, ...], ...] = (
    ("model_name_or_path", "quantization_bit", "stage", "do_train", "pref_beta", "pref_loss"),
    ("finetuning_type", "lora_rank", "lora_alpha", "lora_target"),
    ("dataset_dir", "dataset", "val_size", "output_dir"),
    ("cutoff_len", "packing", "neat_packing"),
    (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "per_device_eval_batch_size",
        "num_train_epochs",
    ),
    ("optim", "learning_rate", "lr_scheduler_type", "warmup_ratio"),
    ("bf16", "fp16", "pure_bf16", "flash_attn", "disable_gradient_checkpointing", "enable_liger_kernel"),
    ("logging_steps", "eval_strategy", "save_strategy", "save_total_limit"),
)
# LLaMA-Factory looks up data by name in this file of `dataset_dir`.
INFO = "dataset_info.json"
_ALPHA_PER_RANK = 2


def start(start: Start) -> dict[str, Any]:
    """Return every value of the config."""
    values = compose(start.wishes)
    values["stage"] = {"pairs": "dpo", "text": "pt"}.get(start.source.format, "sft")
    if start.preference:
        values |= {"pref_beta": 0.1, "pref_loss": "sigmoid"}
    if start.wishes.rank is not None:
        values |= {"lora_alpha": _ALPHA_PER_RANK * start.wishes.rank, "lora_target": "all"}
    values |= _data(start.source)
    values |= _precision(start)
    values |= {
        "num_train_epochs": start.epochs,
        "learning_rate": start.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.03,
        "logging_steps": 10,
        "save_strategy": "epoch",
        "save_total_limit": 2,
        "output_dir": start.output_dir,
    }
    values.pop("eval_steps", None)
    if start.held_out:
        values |= {"val_size": start.held_out, "eval_strategy": "epoch"}
    return values


def _precision(start: Start) -> dict[str, Any]:
    """Return the precision keys.

    `pure_bf16` keeps weights and states of full fine-tuning in bf16; with `bf16` they would be fp32.
    """
    if start.wishes.adapter is None and start.precision == "bf16":
        return {"pure_bf16": True, "bf16": None}
    return {"bf16": start.precision == "bf16", "fp16": start.precision == "fp16"}


def _data(source: Source) -> dict[str, Any]:
    if source.placeholder:
        return {"dataset": source.path}
    return {"dataset_dir": _folder(source), "dataset": source.path}


def _folder(source: Source) -> str:
    return str(PurePosixPath(source.path).parent)


def companions(start: Start) -> dict[str, str]:
    """Return the entry that tells LLaMA-Factory which file and columns a name means."""
    source = start.source
    if source.placeholder:
        return {}
    entry: dict[str, Any] = {"file_name": PurePosixPath(source.path).name, **_ENTRIES[source.format](source)}
    path = PurePosixPath(_folder(source)) / INFO
    return {str(path): json.dumps({source.path: entry}, indent=2, ensure_ascii=False) + "\n"}


def _alpaca(source: Source) -> dict[str, Any]:
    names = {"prompt": "instruction", "query": "input", "response": "output", "system": "system"}
    return {"columns": {name: source.columns[own] for name, own in names.items() if own in source.columns}}


def _chat(source: Source) -> dict[str, Any]:
    user, assistant = source.speakers
    tags = {"role_tag": source.role, "content_tag": source.content, "user_tag": user, "assistant_tag": assistant}
    return {
        "formatting": "sharegpt",
        "columns": {"messages": source.column("messages")},
        "tags": {**tags, "system_tag": "system"},
    }


def _prompt(source: Source) -> dict[str, Any]:
    _refuse_turns(source)
    return {"columns": {"prompt": source.column("prompt"), "response": source.column("completion")}}


def _pairs(source: Source) -> dict[str, Any]:
    _refuse_turns(source)
    return {"ranking": True, "columns": {name: source.column(name) for name in ("prompt", "chosen", "rejected")}}


def _text(source: Source) -> dict[str, Any]:
    return {"columns": {"prompt": source.column("text")}}


def _refuse_turns(source: Source) -> None:
    if source.turns:
        raise VramwiseError(
            f"LLaMA-Factory does not read prompts and answers that are lists of messages, as in {source.path}: choose "
            "another --trainer"
        )


_ENTRIES = {"alpaca": _alpaca, "chat": _chat, "prompt": _prompt, "pairs": _pairs, "text": _text}


def requirements(start: Start) -> tuple[str, ...]:
    """Return nothing."""
    return ()


def launch(run: RunSpec, path: str) -> str:
    """Return the launch command; torchrun starts a process for each GPU and is needed for DeepSpeed and FSDP."""
    forced = "FORCE_TORCHRUN=1 " if run.batch.gpus > 1 else ""
    return f"{forced}llamafactory-cli train {path}"
