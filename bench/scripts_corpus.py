"""Scripts and notebooks of a folder: what is read of each field, and what `predict` says of each file.

Usage: python bench/scripts_corpus.py [FOLDER] [--gpu CARD] [--fields] [--list]

--fields: the table alone, without predictions; --list: a line for each file too. "said": written in the source, or the
library's default because the argument is not passed; "with defaults": also what the command line or the environment may
override; "unknown": cannot be known from the source.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from vramwise.errors import ConfigError
from vramwise.trainers.scripts.reading import NoTraining, Reading, read_script
from vramwise.types import Document

DEFAULT = Path(__file__).parent.parent.parent / "shared" / "corpus" / "scripts"
FIELDS = {
    "model": ("model_name_or_path",),
    "method": ("use_peft", "lora_r", "load_in_4bit", "load_in_8bit", "adapter", "quantization"),
    "batch": ("per_device_train_batch_size", "gradient_accumulation_steps"),
    "length": ("max_length", "max_seq_length", "max_completion_length"),
    "checkpointing": ("gradient_checkpointing",),
    "optimizer": ("optim",),
    "precision": ("bf16", "fp16", "dtype"),
}
# What is missing as a whole: every argument that is not known besides may be in it.
_WHOLE = ("training arguments", "arguments")
_MODEL_WHOLE = ("model",)


def standing(document: Document, field: str) -> str:
    """Whether a field of a script is said, known with defaults, or unknown."""
    script = document.script
    assert script is not None
    keys = FIELDS[field]
    lacking = {one.key for one in script.unsaid}
    whole = set(_MODEL_WHOLE if field == "method" else _WHOLE)
    if field == "model":
        known = "model_name_or_path" in document.values
    elif lacking & set(keys) - document.values.keys():
        known = False
    else:
        known = bool(document.values.keys() & set(keys)) or not lacking & whole
    if not known:
        return "unknown"
    assumed = {note.partition(":")[0] for note in script.assumed if "default" in note or "is not" in note}
    return "with defaults" if assumed & {*keys, *_WHOLE} else "said"


def predicted(path: Path, gpu: str) -> tuple[int, str, float]:
    """Exit code, verdict (or the error's text) and seconds of `vramwise predict`."""
    command = [sys.executable, "-m", "vramwise", "predict", str(path), "--gpu", gpu, "--offline", "--format", "json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    try:
        verdict = json.loads(done.stdout)["verdict"]
        return done.returncode, verdict if isinstance(verdict, str) else verdict["kind"], seconds
    except (ValueError, KeyError):
        return done.returncode, (done.stderr or done.stdout).strip().rpartition("\n")[2], seconds


def main() -> int:
    """Print the table, and the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=str(DEFAULT))
    parser.add_argument("--gpu", default="rtx-4090")
    parser.add_argument("--fields", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    counts: dict[str, Counter[str]] = {field: Counter() for field in (*FIELDS, "all seven")}
    read, nothing, refused = [], 0, []
    for path in sorted(Path(asked.folder).iterdir()):
        try:
            document = read_script(str(path), path.read_bytes(), Reading(bf16=True, capability=(8, 9)))
        except NoTraining:
            nothing += 1
            continue
        except ConfigError as error:
            refused.append(f"{path.name}: {error.message}")
            continue
        read.append(path)
        found = {field: standing(document, field) for field in FIELDS}
        found["all seven"] = next((word for word in ("unknown", "with defaults") if word in found.values()), "said")
        for field, word in found.items():
            counts[field][word] += 1
        if asked.list:
            print(f"{path.name}: {', '.join(f'{field} {word}' for field, word in found.items() if word != 'said')}")
    print(f"{len(read)} read, {nothing} train nothing, {len(refused)} refused")
    print("\n".join(refused))
    print(f"{'field':14} {'said':>6} {'with defaults':>14} {'unknown':>8}")
    for field, count in counts.items():
        share = [100 * one / max(len(read), 1) for one in (count["said"], count["said"] + count["with defaults"])]
        print(f"{field:14} {share[0]:5.0f}% {share[1]:13.0f}% {100 - share[1]:7.0f}%")
    if not asked.fields:
        _print_verdicts(read, asked.gpu, asked.list)
    return 0


def _print_verdicts(read: list[Path], gpu: str, listed: bool) -> None:
    verdicts: Counter[str] = Counter()
    seconds = []
    for path in read:
        code, verdict, took = predicted(path, gpu)
        verdicts[f"exit {code}: {verdict if code != 2 else 'error'}"] += 1
        seconds.append(took)
        if listed or code == 2:
            print(f"{code} {took:5.1f} s {path.name}: {verdict}")
    print(f"on {gpu}:")
    for verdict, count in verdicts.most_common():
        print(f"{count:4} {verdict}")
    print(f"seconds: median {sorted(seconds)[len(seconds) // 2]:.2f}, worst {max(seconds):.2f}")


if __name__ == "__main__":
    sys.exit(main())
