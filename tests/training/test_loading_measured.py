"""The embedded engine's loading, predicted against what `vramwise train` measured on an H200 with random weights."""

import json
from pathlib import Path

import pytest

from train_cases import COMMON, LLAMA_1B, LLAMA_8B, cases
from vramwise.opening.options import Options
from vramwise.opening.subject import open_subject
from vramwise.training.parent.decide import as_loaded

ROOT = Path(__file__).resolve().parents[2]
MEASURED = {run["name"]: run for run in json.loads((ROOT / "bench/results/train_h200.json").read_text())["runs"]}
NAMES = ("lengths vary, unpadded", "full 1B, micro 2 × 2", "LoRA 8B, checkpointing", "QLoRA 1B, checkpointing")


@pytest.mark.parametrize("name", NAMES)
def test_loading_takes_what_it_took(name, tmp_path):
    case = next(case for case in cases() if case.name == name)
    keys = {key: value for key, value in case.config.items() if key not in ("model", "train", "test")}
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_8B if case.config["model"] == "8b" else LLAMA_1B))
    config = tmp_path / "config.yml"
    config.write_text(json.dumps({**COMMON, **keys, "base_model": str(folder), "datasets": [], "output_dir": "out"}))
    options = Options(gpu="h200", versions=("torch==2.11.0",), alloc_conf=case.allocator)
    subject = open_subject(config, options, engine="transformers")
    subject = subject.with_run(as_loaded(subject.run, random_weights=True))
    (load,) = [phase for phase in subject.prediction(steps=1).needs.phases if phase.phase == "load"]
    measured = MEASURED[name]["attempts"][0]["phases"][0]["measured"]
    assert load.peak_allocated_bytes == pytest.approx(measured["allocated_bytes"], rel=0.001)
    assert load.peak_reserved_bytes == pytest.approx(measured["reserved_bytes"], rel=0.001)
