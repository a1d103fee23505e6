"""Configs of TRL and LLaMA-Factory for runs on a card: what is common to all, then a case's own keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# TRL: the data of each of its commands
FILES = {"sft": "sft.jsonl", "dpo": "dpo.jsonl", "kto": "kto.jsonl", "reward": "dpo.jsonl"}
# LLaMA-Factory: the data of each stage, as its own file has it
_PAIRS = {"file_name": "dpo.jsonl", "ranking": True}
DATASET_INFO: dict[str, dict[str, Any]] = {
    "sft": {"file_name": "data.jsonl"},
    "pt": {"file_name": "pt.jsonl", "columns": {"prompt": "text"}},
    "dpo": {**_PAIRS, "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}},
    "kto": {"file_name": "kto.jsonl", "columns": {"prompt": "prompt", "response": "completion", "kto_tag": "label"}},
}
DATASET_INFO["rm"] = DATASET_INFO["dpo"]


def config_of(work: Path, name: str, case: dict[str, Any]) -> dict[str, Any]:
    """The whole config of a case."""
    common = {
        "model_name_or_path": str(work / "models" / case["model"]),
        "output_dir": str(work / "out" / name),
        "max_steps": 5,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "seed": 11,
    }
    own = _trl(work, case) if case["trainer"] == "trl" else _llamafactory(work, case)
    return {**common, **own, **case["config"]}


def _trl(work: Path, case: dict[str, Any]) -> dict[str, Any]:
    return {
        "datasets": [{"path": "json", "data_files": str(work / case.get("file", FILES[case["method"]]))}],
        "test_split_size": 0.1,
    }


def _llamafactory(work: Path, case: dict[str, Any]) -> dict[str, Any]:
    stage = case["method"]
    common = {"stage": stage, "do_train": True, "dataset": stage, "dataset_dir": str(work), "template": "default"}
    return {**common, "overwrite_cache": True, "preprocessing_num_workers": 2}
