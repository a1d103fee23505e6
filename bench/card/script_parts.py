"""What the prepared scripts share: columns of made-up data, and edits that several of them need."""

from __future__ import annotations

import re
from typing import Any

MODELS = "/tmp/scripts-card/models"
ALPACA = {"columns": {"instruction": "short", "input": "short", "output": "long"}}
SHAREGPT = {"columns": {"conversations": "sharegpt"}}
NO_RATIO = (r"warmup_ratio\s*=\s*[\d.]+", "warmup_steps = 1")


def model(name: str, shape_name: str) -> tuple[str, str]:
    """An edit: a model of a hub becomes the local one."""
    return re.escape(name), f"{MODELS}/{shape_name}"


def notebook(file: str, hub: str, shape_name: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A notebook of Unsloth's."""
    edits = [model(hub, shape_name), *more.pop("edits", [])]
    return {
        "file": f"unsloth-nb__{file}.ipynb",
        "shape": shape_name,
        "unsloth": True,
        "data": data,
        "edits": edits,
    } | more


DPO_PORT = [
    (
        r"training_args = TrainingArguments\(",
        "from trl import DPOConfig\ntraining_args = DPOConfig(beta=0.1, max_length=2048,",
    ),
    (r"tokenizer=tokenizer,", "processing_class=tokenizer,"),
    (r"\n\s*beta=0\.1,(?=\n)", ""),
    (r"\n\s*max_prompt_length=\d+,", ""),
    (r"\n\s*max_length=2048,(?=\n)", ""),
]
