"""Ask a trainer's own parser about the mutated configs of tests/data/*-mutated.jsonl, and write its verdicts there.

    python scripts/mutated_verdicts.py tests/data/trl-1.16.0-mutated.jsonl              (with trl installed)
    python scripts/mutated_verdicts.py tests/data/llamafactory-0.9.5-mutated.jsonl      (with llamafactory installed)

Each line is one config: the kind of training, what is set and left out of a small one, and whether it is refused.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

BASES: dict[str, dict[str, Any]] = {
    "trl": {"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "max_steps": 100, "use_peft": True},
    "llamafactory": {
        "model_name_or_path": "Qwen/Qwen3-0.6B",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "dataset": "identity",
        "template": "qwen3",
    },
}


def config_of(case: dict[str, Any], trainer: str) -> dict[str, Any]:
    """The config that a line stands for."""
    return {key: value for key, value in {**BASES[trainer], **case["set"]}.items() if key not in case["drop"]}


def by_trl(values: dict[str, Any], kind: str) -> bool:
    """Whether TRL's command refuses it."""
    import yaml

    import trl_values

    with tempfile.TemporaryDirectory() as folder:  # no open file: a number in a config may be taken for its handle
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        found = trl_values.record(path, kind)
    return "refused" in found or not found["launches"]


def by_llamafactory(values: dict[str, Any], kind: str) -> bool:
    """Whether LLaMA-Factory's command refuses it."""
    import llamafactory_verdicts

    llamafactory_verdicts.put_machine_aside()
    return "error" in llamafactory_verdicts.verdict(Path(), values)


def main() -> None:
    """All lines of the file."""
    import transformers.training_args as arguments

    arguments.is_torch_bf16_gpu_available = arguments.is_torch_tf32_available = lambda *_: True
    path = Path(sys.argv[1])
    trainer = path.name.partition("-")[0]
    ask = {"trl": by_trl, "llamafactory": by_llamafactory}[trainer]
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps({**one, "refused": ask(config_of(one, trainer), one["kind"])}) for one in cases]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
