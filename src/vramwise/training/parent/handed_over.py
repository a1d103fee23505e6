"""Writes the config for another trainer: a copy beside the run's records, with what was decided.

The user's file is not changed. Trainers look only in the working folder, so the copy uses absolute paths for files
beside the config.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.training.plan import TrainPlan
from vramwise.types import Document, Edit
from vramwise.whole_files import write_new


def config_of(plan: TrainPlan) -> Document:
    """Return the user's config as it was when the run began."""
    return parse_document(plan.config_path, plan.config_text.encode("utf-8"))


def hand_over(plan: TrainPlan, name: str, document: Document, edits: Iterable[Edit]) -> Path:
    """Write the copy and return its path."""
    text = apply_edits(document, list(edits)).text
    path = Path(plan.output_dir) / name
    write_new(path, text.encode("utf-8"), make_folder=True)
    return path


def only_beside(path: Any, beside: Path) -> bool:
    """Return whether a path exists relative to the config's folder but not relative to the working folder."""
    return isinstance(path, str) and bool(path) and not Path(path).exists() and (beside / path).exists()


def arguments_of(document: Document, plan: TrainPlan, paths: Iterable[str]) -> Iterator[Edit]:
    """Yield edits of TrainingArguments' keys for this attempt; `paths`: keys that hold a path."""
    beside = Path(document.path).parent.absolute()
    for key in paths:
        value = document.values.get(key)
        if only_beside(value, beside):
            yield Edit(op="set", key=key, value=str(beside / str(value)))
    if not document.values.get("output_dir"):
        yield Edit(op="insert", key="output_dir", value=plan.output_dir)
    if plan.attempt > 1:
        yield Edit(op="insert", key="per_device_train_batch_size", value=plan.micro_batch_size)
        yield Edit(op="insert", key="gradient_accumulation_steps", value=plan.gradient_accumulation_steps)
        if document.values.get("auto_find_batch_size"):  # it would use the checkpoint's batch again
            yield Edit(op="set", key="auto_find_batch_size", value=False)
        if plan.eval_batch_size is not None:
            yield Edit(op="insert", key="per_device_eval_batch_size", value=plan.eval_batch_size)
    if plan.resume_from is not None:
        yield Edit(op="insert", key="resume_from_checkpoint", value=plan.resume_from)
    else:  # whether to resume was decided before the start
        yield Edit(op="delete", key="resume_from_checkpoint")
