"""Predictions for cases of `card/unsloth_runs.py` before they are run: one JSON line each, with the batches to come.

    python bench/unsloth_foretell.py CASES.json [--timed] > predicted.jsonl

The batches follow from the made-up data, its tokenizer and the trainer's order, so nothing of a run is needed. Needs
`tokenizers` and torch (for the permutation). With `--timed` the seconds of a step are predicted too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "measured"), str(HERE / "card"), str(HERE.parent / "src")]

from unsloth_cases import batches, eval_batches, texts, tokenizer_words  # noqa: E402

from unsloth_memory import predicted, shapes_of, subject_of  # noqa: E402
from vramwise.facts.rates import efficiency, rates_of  # noqa: E402
from vramwise.variants.speed.step import priced  # noqa: E402
from vramwise.variants.speed.timed_step import list_step  # noqa: E402

MODELS = json.loads((HERE / "card" / "models.json").read_text())
TORCH, SEED, STEPS = "2.11.0", 3407, 5


def lengths() -> list[int]:
    """Tokens of each sample."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>", "<pad>"]
    learning = {"vocab_size": 6000, "special_tokens": special, "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator([tokenizer_words()], trainers.BpeTrainer(**learning))
    return [len(tokenizer.encode(text).ids) for text in texts()]


def order(count: int, epoch: int) -> list[int]:
    """The permutation of an epoch, as accelerate's seedable sampler draws it."""
    import torch

    generator = torch.Generator()
    generator.manual_seed(SEED + epoch)
    return [int(number) for number in torch.randperm(count, generator=generator)]


def row_of(name: str, case: list[Any], samples: list[int], steps: int) -> dict[str, Any]:
    """A run that is still to come, in the words of a measured one."""
    row: dict[str, Any] = {"name": name, "case": case, "model": MODELS[case[0]], "torch": TORCH}
    row |= {"widths": batches(case, samples, order, steps), "eval_widths": eval_batches(case, samples)}
    return row | {"steps": [None] * steps}


def step_seconds(row: dict[str, Any]) -> float:
    """The mean over the batches, at the calibrated rates."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
    rates = rates_of(subject.target.gpu)
    assert subject.model is not None
    assert rates is not None
    each = subject.run.batch.gradient_accumulation_steps
    shapes = shapes_of(row["widths"])
    found = []
    for shape in shapes:
        sample = shape.width // (shape.samples or 1)
        work = list_step(subject.run, subject.model, shape, sample)
        found.append(priced(work, each, rates, efficiency("unsloth")).seconds)
    return sum(found) / len(found)


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--timed", action="store_true")
    arguments = parser.parse_args()
    samples = lengths()
    for name, case in json.loads(arguments.cases.read_text()).items():
        row = row_of(name, case, samples, STEPS)
        figures = predicted(row)
        said = {key: round(getattr(figures, key), 1) for key in ("load_allocated", "load_reserved")}
        said |= {key: round(getattr(figures, key), 1) for key in ("allocated", "reserved")}
        if arguments.timed:
            said["step_seconds"] = round(step_seconds(row), 5)
        print(json.dumps({**row, "predicted": said}), flush=True)


if __name__ == "__main__":
    main()
