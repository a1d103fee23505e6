"""Edits of batches, rows and the data loader."""

from __future__ import annotations

from typing import Any

from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.trainers.axolotl.spell.edits import by_key, put
from vramwise.trainers.spelling import Speller
from vramwise.types import Edit, RunSpec


def _micro_batch(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set micro_batch_size; up to 0.19, ring attention accepts packed rows only one at a time."""
    ring = run.sharding.context_parallel_size > 1 and run.shapes.sample_packing and not schema_of(run).since("0.20.0")
    return None if ring and value > 1 else (put(run, "micro_batch_size", value),)


def _accumulation(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set gradient_accumulation_steps, which is refused together with `batch_size`."""
    return None if run.config.get("batch_size") else (put(run, "gradient_accumulation_steps", value),)


def _eval_batch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Set eval_batch_size only if it is written: unset, it follows the micro-batch."""
    return (put(run, "eval_batch_size", value),) if "eval_batch_size" in run.config else ()


def _automatic_batch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (delete_key("auto_find_batch_size"), put(run, "eval_batch_size", run.batch.micro_batch_size))


def _eval_length(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Set eval_sequence_len only if it is written: unset, it follows sequence_len."""
    return (put(run, "eval_sequence_len", value),) if run.config.get("eval_sequence_len") else ()


def _padding(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Set or delete pad_to_sequence_len.

    Unset rounds widths up to a multiple of 64, unlike `false`.
    """
    return (put(run, "pad_to_sequence_len", True),) if value else (delete_key("pad_to_sequence_len"),)


def _pad_multiple(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (set_key("pad_to_multiple_of", value),) if run.config.get("pad_to_multiple_of") else ()


def _packing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Turn packing on, unless evaluation prints a table or data is streamed, which packing does not support."""
    refused = run.config.get("eval_table_size") or run.config.get("streaming") or run.config.get("pretraining_dataset")
    return None if refused or not value else (put(run, "sample_packing", True),)


def _prefetch(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    return (insert_key("dataloader_prefetch_factor", value, beside="dataloader_num_workers"),)


def _evaluates(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Turn evaluation off. Before Axolotl 0.21, it happens once all the same, unless no samples are held out."""
    if value:
        return None
    times = [key for key in ("evals_per_epoch", "eval_steps", "eval_on_start") if run.config.get(key)]
    dropped = tuple(delete_key(key) for key in times)
    if schema_of(run).since("0.21.0"):
        return (put(run, "eval_strategy", "no"), *dropped)
    held = [delete_key(key) for key in ("test_datasets", "eval_strategy") if key in run.config]
    return (*((put(run, "val_set_size", 0),) if run.config.get("val_set_size") else ()), *held, *dropped)


SPELLERS: dict[str, Speller] = {
    "micro_batch_size": _micro_batch,
    "gradient_accumulation_steps": _accumulation,
    "eval_batch_size": _eval_batch,
    "evaluates": _evaluates,
    "automatic_batch": _automatic_batch,
    "sequence_len": by_key("sequence_len"),
    "eval_sequence_len": _eval_length,
    "pad_to_sequence_len": _padding,
    "pad_multiple": _pad_multiple,
    "sample_packing": _packing,
    "loader_workers": by_key("dataloader_num_workers"),
    "loader_prefetch": _prefetch,
}
