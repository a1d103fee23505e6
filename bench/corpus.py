"""All configs of a folder in one `check`, against the time of `import transformers` once (where that is installed).

Usage: python bench/corpus.py [FOLDER] [PYTHON-WITH-TRANSFORMERS]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

DEFAULT = Path(__file__).parent.parent.parent / "shared" / "corpus" / "axolotl"
ROUNDS = 5


def best(command: list[str]) -> tuple[float, int]:
    """Best wall time of a command, and its exit code."""
    times = []
    code = 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        code = done.returncode
        times.append(time.perf_counter() - start)
    return min(times), code


def shows_all(folder: str, count: int) -> bool:
    """Whether the report names every file, so that a failed run cannot look fast."""
    command = [sys.executable, "-m", "vramwise", "check", folder, "--gpu", "h100", "--format", "json"]
    return len(json.loads(subprocess.run(command, capture_output=True, check=False).stdout)["files"]) == count


def main() -> int:
    """Print both times and their ratio."""
    folder = sys.argv[1] if len(sys.argv) > 1 else str(DEFAULT)
    other = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    if not Path(folder).is_dir():
        print(f"no configs at {folder}: name a folder")
        return 0
    count = len(list(Path(folder).rglob("*.y*ml")))
    ours, code = best([sys.executable, "-m", "vramwise", "check", folder, "--gpu", "h100", "--format", "json"])
    if not shows_all(folder, count):
        raise SystemExit(f"vramwise check did not report every file (exit code {code})")
    print(f"vramwise check, {count} files   {ours:6.2f} s")
    theirs, code = best([other, "-c", "import transformers"])
    if code:
        print("transformers is not installed there: no ratio")
        return 0
    print(f"import transformers         {theirs:6.2f} s")
    print(f"ratio                       {ours / theirs:6.2f}  (goal: below 1)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
