"""Predicted against measured, for runs of the real Unsloth: loading, allocated and reserved, one line a run.

    python tests/measured/unsloth_memory.py [FILE.jsonl ...] [--only NAME]
    python tests/measured/unsloth_memory.py --record

Each measured run is a model's `config.json`, the arguments of three calls and what came of them on a card. It is
predicted from a script with those calls; the widths of the batches are those that came.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from axolotl_memory import MIB, Figures  # noqa: E402
from record import Entry, write  # noqa: E402
from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.ghost.loops.batches import BatchShape  # noqa: E402
from vramwise.ghost.loops.sft import ghost_run  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import Subject, open_subject  # noqa: E402
from vramwise.timeline import MemoryReport  # noqa: E402
from vramwise.types import RunSpec  # noqa: E402
from vramwise.variants.features import features  # noqa: E402

RUNS = HERE.parent / "tests" / "data" / "truth"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = {"r": 16, "lora_alpha": 16, "lora_dropout": 0, "bias": "none", "use_gradient_checkpointing": "unsloth"}
ARGS = {"output_dir": "out", "max_steps": 5, "optim": "adamw_8bit", "max_length": 2048, "seed": 3407}
VERSIONS = (
    "unsloth==2026.10.9",
    "transformers==5.17.0",
    "trl==1.15.0",
    "peft==0.21.2",
    "bitsandbytes==0.50.2",
    "xformers==0",
)


def script_of(row: dict[str, Any], model: Path) -> str:
    """The calls of a measured run."""
    _, load, peft, args = row["case"][:4]
    lines = ["from unsloth import FastLanguageModel", "from trl import SFTConfig, SFTTrainer"]
    named = {"model_name": str(model), "max_seq_length": 2048, **load}
    lines.append(f"model, tokenizer = FastLanguageModel.from_pretrained({_words(named)})")
    if peft is not None:
        lora = {**LORA, "target_modules": TARGETS, **peft}
        lines.append(f"model = FastLanguageModel.get_peft_model(model, {_words(lora)})")
    lines.append(f"trainer = SFTTrainer(model=model, args=SFTConfig({_words({**ARGS, **args})}))")
    return "\n".join([*lines, "trainer.train()", ""])


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def subject_of(row: dict[str, Any], folder: Path) -> Subject:
    """The run as a user would hand it in: a script, and its model beside it."""
    model = folder / "MODEL"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({**row["model"], "dtype": "bfloat16", "random_weights": True}))
    (folder / "train.py").write_text(script_of(row, model))
    versions = (*VERSIONS, f"torch=={row['torch'].split('+')[0]}")
    return open_subject(folder / "train.py", Options(gpu="h200", versions=versions))


def shapes_of(batches: list[dict[str, Any]]) -> list[BatchShape]:
    """The batches that came; flattened ones say how many samples they hold."""
    found = []
    for batch in batches:
        rows, width = batch["input_ids"]
        samples = batch.get("packed_seq_lengths")
        found.append(BatchShape(rows, width, samples is None, samples=samples[0] if samples else None))
    return found


def limit_of(row: dict[str, Any]) -> int | None:
    """The limit that a drawn run had (`card/capped_cases.py`)."""
    told = row["case"][4] if len(row["case"]) > 4 else {}
    return int(told["limit_mib"] * MIB) if told.get("limit_mib") else None


def run_of(row: dict[str, Any]) -> RunSpec:
    """The run that the script resolves to."""
    with tempfile.TemporaryDirectory() as folder:
        return subject_of(row, Path(folder)).run


def report_of(row: dict[str, Any], *, plainly: bool = False) -> MemoryReport:
    """What the run is predicted to take, phase by phase."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
    assert subject.model is not None
    timeline, _ = ghost_run(
        subject.run,
        subject.model,
        widths=shapes_of(row["widths"]),
        eval_widths=shapes_of(row.get("eval_widths", [])) or None,
        steps=len(row["steps"]),
        gpu=subject.target.gpu,
        capacity_bytes=limit_of(row),
        plainly=plainly,
    )
    return simulate(timeline, parse_settings(subject.run.allocator.settings, subject.target.torch))


def predicted(row: dict[str, Any]) -> Figures:
    """The figures, foretold."""
    phases = report_of(row).phases
    load = [phase for phase in phases if phase.phase == "load"]
    rest = [phase for phase in phases if phase.phase != "load"]
    return Figures(
        *(max(getattr(phase, f"peak_{kind}_bytes") for phase in load) / MIB for kind in ("allocated", "reserved")),
        *(max(getattr(phase, f"peak_{kind}_bytes") for phase in rest) / MIB for kind in ("allocated", "reserved")),
    )


def measured(row: dict[str, Any]) -> Figures:
    """What the card showed: peaks of loading, and of all steps."""
    load = row["load"]
    return Figures(load[0], load[2], max(step[0] for step in row["steps"]), max(step[2] for step in row["steps"]))


def entry_of(row: dict[str, Any]) -> Entry:
    """The run as it is recorded."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
    assert subject.model is not None
    guess, truth = predicted(row), measured(row)
    off = {name: getattr(guess, name) / getattr(truth, name) - 1 for name in ("allocated", "reserved", "load_reserved")}
    return Entry(
        name=row["name"],
        features=features(subject.run, subject.model),
        allocated=off["allocated"],
        reserved=off["reserved"],
        load=off["load_reserved"],
    )


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """The runs that reached their end."""
    files = files or sorted(RUNS.glob("unsloth-*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]
    return [row for row in found if row.get("steps") and not row["rc"]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--record", action="store_true", help="write the errors that predictions name")
    parser.add_argument("--guess", action="store_true", help="print predictions alone")
    arguments = parser.parse_args()
    if arguments.record:
        return write([entry_of(row) for row in rows(arguments.files)], "unsloth")
    errors: dict[str, list[float]] = {}
    for row in rows(arguments.files):
        if arguments.only not in row["name"]:
            continue
        guess, truth = predicted(row), measured(row)
        line = f"{row['name']:32s}"
        for name in ("load_allocated", "load_reserved", "allocated", "reserved"):
            value, found = getattr(guess, name), getattr(truth, name)
            errors.setdefault(name, []).append(abs(value / found - 1))
            line += f"  {name} {value:8.1f}" + ("" if arguments.guess else f" / {found:8.1f} {value / found - 1:+7.2%}")
        print(line, flush=True)
    for name, sizes in errors.items():
        if not arguments.guess:
            print(f"{name}: {len(sizes)} runs, median {median(sizes):.2%}, worst {max(sizes):.2%}")
    return None


if __name__ == "__main__":
    main()
