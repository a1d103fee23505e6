"""What `fit` chooses for real configs on three cards each, as runs for a larger card with so much memory:

    python fit_cases.py CONFIG_FOLDER > cases.json

Each case carries what was foretold: reserved memory, and the time of a step on the card that will run it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src")]

from vramwise.options import Options  # noqa: E402
from vramwise.subject import open_subject  # noqa: E402
from vramwise.variants.speed import speed_of  # noqa: E402
from vramwise.verbs.fitting.fastest import fit_subject as fit  # noqa: E402

RUNS_ON = "h200"
SMALL, LARGE = ("rtx-3060-12gb", "rtx-4090", "a100-40gb"), ("rtx-4090", "a100-40gb", "h100-80gb")
CONFIGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "archived__openllama-3b__lora.yml": ("openllama3b", SMALL),
    "archived__openllama-3b__qlora.yml": ("openllama3b", SMALL),
    "archived__tiny-llama__lora.yml": ("tinyllama", SMALL),
    "archived__tiny-llama__qlora.yml": ("tinyllama", SMALL),
    "gemma3__gemma-3-1b-qlora.yml": ("gemma3_1b", SMALL),
    "llama-3__lora-1b.yml": ("llama1b", SMALL),
    "llama-3__lora-1b-sample-packing-sequentially.yml": ("llama1b", SMALL),
    "deepcogito__cogito-v1-preview-llama-3B-lora.yml": ("llama3b", LARGE),
    "llama-3__qlora.yml": ("llama8b", LARGE),
    "llama-3__lora-8b.yml": ("llama8b", LARGE),
}
# What names things that are not on the card's machine, or would only write files.
_LEFT_OUT = frozenset(
    {
        *("base_model", "datasets", "dataset_prepared_path", "output_dir", "special_tokens", "tokenizer_type"),
        *("saves_per_epoch", "save_steps", "evals_per_epoch", "val_set_size", "num_epochs", "chat_template"),
        *("base_model_config", "tokens", "hub_model_id", "eval_sample_packing"),
    }
)


def case(path: Path, model: str, card: str) -> dict[str, Any] | None:
    """The winner as a run of the card's machine; None where nothing fits."""
    subject = open_subject(path, Options(gpu=card, versions=("axolotl==0.21.0",), torch="2.11"))
    best = fit(subject).best
    if best is None or best.attempt.document is None:
        return None
    assert best.attempt.prediction is not None
    there = subject.with_document(best.attempt.document).on_card(open_subject(path, Options(gpu=RUNS_ON)).target.gpu)
    values = best.attempt.document.values
    config = {key: value for key, value in values.items() if key not in _LEFT_OUT and not key.startswith("wandb")}
    config = {key: value for key, value in config.items() if value is not None}
    speed = speed_of(there.run, there.model)
    here, capacity = there.prediction(), best.attempt.prediction.capacity_bytes
    assert capacity is not None
    return {
        "model": model,
        "axolotl": "0.21.0",
        "workload": f"{path.stem} on {card}",
        "limit_mib": capacity >> 20,
        "config": {**config, "max_steps": 6, "num_epochs": 4, "val_set_size": 0},
        "alloc": best.attempt.prediction.run.allocator.settings,
        "foretold": {
            "reserved_mib": here.needs.highest_reserved_bytes >> 20,
            "step_seconds": None if speed is None else speed.step_seconds,
            "changes": [change.title for change in best.attempt.changes],
        },
    }


def main() -> None:
    """Print the cases."""
    cases = {}
    for name, (model, cards) in CONFIGS.items():
        for card in cards:
            found = case(Path(sys.argv[1]) / name, model, card)
            label = f"{Path(name).stem.replace('__', '_')[:40]}_{card}@21"
            print(label, found and found["foretold"], file=sys.stderr, flush=True)
            if found is not None:
                cases[label] = found
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
