"""CPU time of `fit`, and how many variants it weighed and simulated, on configs of this repository and of Axolotl.

Usage: python bench/fit.py FOLDER-OF-AXOLOTL-CONFIGS [--write]. With --write the table goes to bench/results/fit.md.
The goals: 5 s for an 8B LoRA on one card, 20 s for a mixture of experts or a sharded run.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.opening.options import Options
from vramwise.opening.subject import open_subject
from vramwise.units import gib
from vramwise.verbs.fitting.fastest import fit_subject as fit

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
# (file, card, how many); files without a folder are of the folder that is named
CASES = (
    (EXAMPLES / "picture.yml", "rtx-4090", 1),
    (EXAMPLES / "picture.yml", "h200", 1),
    (EXAMPLES / "qlora.yml", "rtx-4090", 1),
    (EXAMPLES / "full.yml", "rtx-4090", 1),
    ("llama-3__lora-8b.yml", "rtx-4090", 1),
    ("llama-3__lora-8b.yml", "a100-80gb", 1),
    ("llama-3__fft-8b.yaml", "a100-80gb", 1),
    ("archived__qwen__qwen2-moe-qlora.yaml", "a100-80gb", 1),
    ("qwen3.5__35b-a3b-moe-qlora.yaml", "rtx-4090", 1),
    ("llama-3__fft-8b-liger-fsdp.yaml", "a100-80gb", 4),
    ("llama-3__qlora-fsdp-70b.yaml", "rtx-4090", 8),
)
HEAD = (
    "| config | card | CPU s | variants | simulated | answer |",
    "|---|---|---|---|---|---|",
)


def row(path: Path, card: str, gpus: int) -> str:
    """One line of the table."""
    subject = open_subject(str(path), Options(gpu=card, gpus=gpus))
    start = time.process_time()
    try:
        found = fit(subject)
    except VramwiseError as error:
        return f"| {path.name} | {card} | – | – | – | {error} |"
    taken = time.process_time() - start
    if found.best is None:
        words = ", ".join(word for word, _ in found.opened)
        missed = gib(-(found.closest.spare_bytes or 0)) if found.closest else "much"
        answer = f"nothing fits, the closest misses by {missed}" + (f"; --allow {words}" if words else "")
    else:
        faster = "" if found.speedup is None else f"{found.speedup:.2f} × as fast: "
        answer = faster + found.best.words
    cards = card if gpus == 1 else f"{gpus} × {card}"
    return f"| {path.name} | {cards} | {taken:.1f} | {found.considered:,} | {found.simulated} | {answer} |"


def main() -> None:
    """All of them, as a table."""
    folder = Path(sys.argv[1])
    lines = list(HEAD)
    for name, card, gpus in CASES:
        lines.append(row(folder / name, card, gpus))
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    if "--write" in sys.argv:
        text = f"# `fit`: what a search takes\n\n{__doc__}\n" + "\n".join(lines) + "\n"
        (ROOT / "bench" / "results" / "fit.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
