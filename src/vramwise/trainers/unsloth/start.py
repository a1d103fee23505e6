"""Writes new trainings with Unsloth: keys of a script like its notebooks, or the file of its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.trainers.starting import Source, Start
from vramwise.trainers.unsloth.keys import wide_checkpoint
from vramwise.trainers.wishes import Wishes
from vramwise.types import RunSpec

# The sections of the command's file.
GROUPS: tuple[tuple[str, ...], ...] = (("model",), ("data",), ("training",), ("lora",), ())
_ALPHA_PER_RANK = 2
_DROPOUT = 0
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# The command's names of the formats; plain text is used unchanged.
_FORMATS = {"alpaca": "alpaca", "chat": "auto", "text": "raw"}
_WARMUP_STEPS = 5


def start(start: Start) -> dict[str, Any]:
    """Return every value: keys of the calls for a script, sections for a file; raises VramwiseError if unsupported."""
    if start.preference:
        raise VramwiseError(
            "Unsloth's own DPO is not predicted yet, so no config for it can be promised to fit: choose another "
            "--trainer for preference pairs"
        )
    return _of_script(start) if start.script else _of_file(start)


def _of_script(start: Start) -> dict[str, Any]:
    wishes = start.wishes
    values: dict[str, Any] = {
        "model_name_or_path": wishes.model,
        "max_seq_length": wishes.sequence_len,
        "load_in_4bit": wishes.adapter == "qlora",
        **_exact(wishes),
        **_method(wishes),
        "use_gradient_checkpointing": "unsloth" if wishes.checkpointing else False,
        **_data(start.source),
        "packing": bool(wishes.packing),
        "per_device_train_batch_size": wishes.micro_batch,
        "gradient_accumulation_steps": wishes.accumulation,
        "num_train_epochs": start.epochs,
        "optim": wishes.optimizer,
        "learning_rate": start.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
        "logging_steps": 10,
        "save_strategy": "epoch",
        "save_total_limit": 2,
        "output_dir": start.output_dir,
    }
    if start.held_out:
        values |= {
            "eval_strategy": "epoch",
            "per_device_eval_batch_size": wishes.eval_batch,
            "test_split_size": start.held_out,
        }
    return {key: value for key, value in values.items() if value is not None}


def _exact(wishes: Wishes) -> dict[str, Any]:
    """Return the key that prevents loading another checkpoint instead, if the size of that one is unknown."""
    wide = wishes.adapter == "qlora" and wide_checkpoint(wishes.model) is not None
    return {"use_exact_model_name": True} if wide else {}


def _method(wishes: Wishes) -> dict[str, Any]:
    if wishes.adapter is None:
        return {"full_finetuning": True}
    rank = wishes.rank
    sizes = {} if rank is None else {"lora_r": rank, "lora_alpha": _ALPHA_PER_RANK * rank}
    return {"use_peft": True, **sizes, "lora_dropout": _DROPOUT, "lora_target_modules": TARGETS}


def _data(source: Source) -> dict[str, Any]:
    if source.placeholder:
        return {"dataset_name": source.path}
    files = f"{source.path.rstrip('/')}/*" if source.folder else source.path
    return {"datasets": [{"path": source.kind, "data_files": files}]}


def _of_file(start: Start) -> dict[str, Any]:
    """Return the sections of the command's file, which has no key for the optimizer, evaluation or held-out data."""
    wishes = start.wishes
    if start.gpus > 1:
        raise VramwiseError("Unsloth's command uses one card: for several write a script with --as script")
    if _exact(wishes):
        raise VramwiseError(
            f"Unsloth's command loads {wide_checkpoint(wishes.model)} instead, whose size is not predicted: write a "
            "script with --as script"
        )
    training: dict[str, Any] = {
        "training_type": "full" if wishes.adapter is None else "lora",
        "max_seq_length": wishes.sequence_len,
        "load_in_4bit": wishes.adapter == "qlora",
        "packing": bool(wishes.packing),
        "batch_size": wishes.micro_batch,
        "gradient_accumulation_steps": wishes.accumulation,
        "num_epochs": start.epochs,
        "learning_rate": start.learning_rate,
        "warmup_steps": _WARMUP_STEPS,
        "gradient_checkpointing": "unsloth" if wishes.checkpointing else "none",
        "output_dir": start.output_dir,
    }
    values: dict[str, Any] = {
        "model": wishes.model,
        "data": _section(start.source),
        "training": {key: value for key, value in training.items() if value is not None},
    }
    if wishes.adapter is not None and wishes.rank is not None:
        alpha = _ALPHA_PER_RANK * wishes.rank
        values["lora"] = {"lora_r": wishes.rank, "lora_alpha": alpha, "lora_dropout": float(_DROPOUT)}
    return values


def _section(source: Source) -> Mapping[str, Any]:
    if source.placeholder:
        return {"dataset": source.path, "format_type": _FORMATS.get(source.format, "auto")}
    usual = {"alpaca": {"instruction", "input", "output"}, "text": {"text"}, "chat": {"messages", "conversations"}}
    if source.folder or not set(source.columns.values()) <= usual.get(source.format, set()):
        columns = ", ".join(source.columns.values())
        raise VramwiseError(
            f"Unsloth's command does not read the columns {columns} of {source.path}: write a script with --as script"
        )
    return {"local_dataset": [source.path], "format_type": _FORMATS[source.format]}


def companions(start: Start) -> dict[str, str]:
    """Return nothing: the config names its data."""
    return {}


def requirements(start: Start) -> tuple[str, ...]:
    """Return nothing."""
    return ()


def launch(run: RunSpec, path: str) -> str:
    """Return the launch command, which uses one card."""
    return f"unsloth train --config {path}"
