"""CPU time of `vramwise check FILE --gpu GPU`, prediction included, for every config of a folder.

Each file in a process of its own, start included; with --warm in one process, where modules are loaded already.
The goal is under 1 s at the 95th percentile.

    python bench/check_speed.py [FOLDER] [--gpu GPU] [--warm] [--only NAME]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

DEFAULT = ROOT.parent / "shared" / "corpus" / "axolotl"
GOAL_S = 1.0
_COMPILED = tempfile.TemporaryDirectory()


def fresh(path: Path, gpu: str) -> float:
    """Seconds of CPU of one `check`, in a process of its own, its modules compiled as an installed package's are."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "vramwise", "check", str(path), "--gpu", gpu]
    done = subprocess.run(command, capture_output=True, check=False, env=_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"{path} failed:\n{done.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@cache
def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": _COMPILED.name}


def warm(path: Path, gpu: str) -> float:
    """Seconds of CPU of the same in this process."""
    from vramwise.opening.options import Options
    from vramwise.verbs.check import check

    start = time.process_time()
    list(check([str(path)], Options(gpu=gpu)))
    return time.process_time() - start


def main() -> int:
    """Print median, 95th percentile and worst, and the slowest files; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--only", default="", help="files whose name contains this")
    arguments = parser.parse_args()
    paths = [path for path in sorted(arguments.folder.rglob("*.y*ml")) if arguments.only in path.name]
    if not paths:
        print(f"no configs at {arguments.folder}: name a folder")
        return 0
    measure = warm if arguments.warm else fresh
    measure(paths[0], arguments.gpu)
    times = sorted([(measure(path, arguments.gpu), path.name) for path in paths], reverse=True)
    at_95 = times[len(times) // 20][0]
    print(f"check, {len(times)} files, {'warm' if arguments.warm else 'fresh processes'}, {arguments.gpu}")
    print(f"median {median([seconds for seconds, _ in times]):.2f} s, 95th percentile {at_95:.2f} s", end="")
    print(f" (goal: under {GOAL_S:.0f}), worst {times[0][0]:.2f} s, sum {sum(seconds for seconds, _ in times):.0f} s")
    for seconds, name in times[:10]:
        print(f"  {seconds:6.2f} s  {name}")
    return int(at_95 >= GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
