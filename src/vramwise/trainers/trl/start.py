"""Writes new configs for TRL's command: the requested settings, the data, the schedule."""

from __future__ import annotations

from typing import Any

from vramwise.errors import VramwiseError
from vramwise.trainers.starting import Source, Start
from vramwise.trainers.trl.compose import compose
from vramwise.trainers.trl.kind import kind_name
from vramwise.types import RunSpec

GROUPS: tuple[tuple[str, ...], ...] = (
    ("model_name_or_path", "dtype", "use_peft", "load_in_4bit", "lora_r", "lora_alpha", "lora_target_modules"),
    ("beta", "precompute_ref_log_probs", "dataset_name", "datasets", "dataset_text_field", "test_split_size"),
    ("output_dir",),
    ("max_length", "packing", "pad_to_multiple_of"),
    (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "per_device_eval_batch_size",
        "num_train_epochs",
    ),
    ("optim", "learning_rate", "lr_scheduler_type", "warmup_ratio", "warmup_steps"),
    ("bf16", "fp16", "attn_implementation", "gradient_checkpointing", "accelerate_config", "num_processes"),
    ("logging_steps", "eval_strategy", "save_strategy", "save_total_limit"),
)
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def start(start: Start) -> dict[str, Any]:
    """Return every value of the config."""
    values = compose(start.wishes)
    values |= {
        "dtype": _DTYPES[start.precision],
        "bf16": start.precision == "bf16",
        "fp16": start.precision == "fp16",
        "num_train_epochs": start.epochs,
        "learning_rate": start.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
        "logging_steps": 10,
        "save_strategy": "epoch",
        "save_total_limit": 2,
        "output_dir": start.output_dir,
    }
    if start.preference:
        values.pop("packing")
        values |= {"beta": 0.1, "precompute_ref_log_probs": False}
    if start.source.placeholder:
        values["dataset_name"] = start.source.path
    else:
        del values["dataset_name"]
        values["datasets"] = [_dataset(start.source)]
    if not start.script:
        refuse_unread(start.source)
    if start.source.format == "text" and start.source.column("text") != "text":
        values["dataset_text_field"] = start.source.column("text")
    if start.held_out:
        values |= {"eval_strategy": "epoch", "test_split_size": start.held_out}
    else:
        values.pop("eval_strategy", None)
    values.pop("eval_steps", None)
    if start.gpus > 1:
        values["num_processes"] = start.gpus
    return values


def _dataset(source: Source) -> dict[str, Any]:
    files = f"{source.path.rstrip('/')}/*" if source.folder else source.path
    return {"path": source.kind, "data_files": files, "columns": list(dict.fromkeys(source.columns.values()))}


def refuse_unread(source: Source) -> None:
    """Raise VramwiseError for data that TRL's command cannot read and no key maps."""
    wanted = {
        "prompt": {"prompt", "completion"},
        "pairs": {"prompt", "chosen", "rejected"},
        "chat": {"messages"} if source.role == "role" else {"conversations"},
    }
    if (
        source.placeholder
        or source.format == "text"
        or (source.format in wanted and set(source.columns.values()) <= wanted[source.format])
    ):
        return
    columns = ", ".join(source.columns.values())
    raise VramwiseError(
        f"TRL's command does not read the columns {columns} of {source.path}: write a script with --as script, which "
        "maps them, or choose another --trainer"
    )


def companions(start: Start) -> dict[str, str]:
    """Return nothing: the config names its data."""
    return {}


def requirements(start: Start) -> tuple[str, ...]:
    """Return the need for a chat template if samples are messages; a script provides one itself."""
    if start.script or not start.source.conversational:
        return ()
    return (
        "a chat template in the model's tokenizer; base models often have none: then use --as script, or set "
        "chat_template_path",
    )


def launch(run: RunSpec, path: str) -> str:
    """Return the launch command; TRL's command reads the number of processes from the file."""
    return f"trl {kind_name(run)} --config {path}"
