"""How fast `vramwise check` starts: against `import yaml, click`, and that nothing heavy is imported.

Prints the ratio of medians; run on a quiet machine. The goal is 4 or less.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIG = str(ROOT / "examples" / "qlora.yml")
HEAVY = ("torch", "transformers", "huggingface_hub", "numpy")
ROUNDS = 15


def seconds(command: list[str]) -> float:
    """Median wall time of a command."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        times.append(time.perf_counter() - start)
        if done.returncode != 0:
            raise SystemExit(f"{command} failed:\n{done.stderr.decode()}")
    return statistics.median(times)


def imported(command: list[str]) -> set[str]:
    """Top-level modules that a command imports."""
    run = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=False)
    names = (line.rsplit("|", 1)[-1].strip() for line in run.stderr.splitlines() if line.startswith("import time:"))
    return {name.split(".")[0] for name in names}


def main() -> int:
    """Print the figures; fail only on a heavy import."""
    check = ["-m", "vramwise", "check", CONFIG]
    base = seconds([sys.executable, "-c", "import yaml, click"])
    cold = seconds([sys.executable, *check])
    card = seconds([sys.executable, *check, "--gpu", "rtx-4090", "--no-predict"])
    predicted = seconds([sys.executable, *check, "--gpu", "rtx-4090"])
    print(f"import yaml, click                      {base * 1000:6.0f} ms")
    print(f"vramwise check                          {cold * 1000:6.0f} ms")
    print(f"ratio                                   {cold / base:6.2f}  (goal: at most 4)")
    print(f"vramwise check, card named, no forecast {card * 1000:6.0f} ms  (ratio {card / base:.2f})")
    print(f"vramwise check, the run predicted       {predicted * 1000:6.0f} ms  (ratio {predicted / base:.2f})")
    heavy = imported([*check, "--gpu", "rtx-4090"]) & set(HEAVY)
    print(f"heavy imports                           {', '.join(sorted(heavy)) or 'none'}")
    return 1 if heavy else 0


if __name__ == "__main__":
    sys.exit(main())
