"""Files of TrainingArguments under the embedded engine, trained like transformers' run_clm.py.

Its texts are joined and cut into blocks. What other scripts do with their own keys cannot be known from the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.errors import ConfigError
from vramwise.trainers.arguments import training_arguments
from vramwise.training.embedded.arguments import Check, against, engine_values, unhonoured, value_checks, words_of
from vramwise.types import RunSpec

_OWN = words_of(
    """
    model_name_or_path model_revision dtype torch_dtype attn_implementation train_file validation_file block_size
    validation_split_percentage preprocessing_num_workers overwrite_cache trust_remote_code do_eval cache_dir
    """
)
_HELD_OUT_PERCENT = 5


def unsupported(run: RunSpec) -> Iterator[ConfigError]:
    """Yield what the engine cannot honour in a file of TrainingArguments."""
    yield from unhonoured(run, training_arguments(run.target.stack), _OWN)
    yield from against(run, [*value_checks(run), *_checks(run)])


def _checks(run: RunSpec) -> list[Check]:
    get = run.config.get
    file, size = get("train_file"), get("block_size")
    return [
        (
            "train_file",
            not isinstance(file, str),
            "no train_file: which data these arguments are for, only the script that reads them knows",
        ),
        (
            "block_size",
            not isinstance(size, int) or size < 1,
            "no block_size: how long its rows are, only the script that reads them knows",
        ),
    ]


def in_engine_words(run: RunSpec) -> dict[str, Any]:
    """Return the engine's settings for a file of TrainingArguments."""
    config = run.config
    row = {"type": "blocks", "size": config.get("block_size")}
    held = config.get("validation_file")
    share = 0.0 if held else config.get("validation_split_percentage", _HELD_OUT_PERCENT) / 100
    return {
        **engine_values(run, training_arguments(run.target.stack)),
        "datasets": [{"path": config.get("train_file"), **row}],
        "test_datasets": [{"path": held, **row}] if held and run.evaluation.evaluates else None,
        "val_set_size": share,
        "held_out_first": True,
        "weights": "auto" if not (config.get("dtype") or config.get("torch_dtype")) else None,
    }
