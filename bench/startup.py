"""How fast `vramwise check` starts: its time against `import yaml, click`, and how many of our modules it loads.

Times are of the processor, medians of runs that take turns, with bytecode written before, as an installation has it.
The goals: at most 250 modules, and at most 3 times `import yaml, click`. Fails only on a heavy import.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIGS = {"axolotl": "qlora.yml", "trl": "trl-sft.yml", "llamafactory": "llamafactory-lora.yml"}
HEAVY = {"torch", "transformers", "huggingface_hub", "numpy"}
BASE = ["-c", "import yaml, click"]
ROUNDS = 15
# Runs the command that follows, then prints the name of every module that is loaded.
LISTING = """
import sys
from vramwise.cli.main import main
try:
    main()
except SystemExit:
    pass
sys.stderr.write("modules: " + " ".join(sys.modules))
"""


def check(name: str, *more: str) -> list[str]:
    """The arguments of Python for `vramwise check` of an example."""
    return ["-m", "vramwise", "check", str(ROOT / "examples" / name), *more]


def seconds(arguments: list[str], environ: dict[str, str]) -> float:
    """Processor time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], capture_output=True, check=False, env=environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: findings
        raise SystemExit(f"{arguments} failed:\n{done.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def medians(commands: dict[str, list[str]]) -> dict[str, float]:
    """Median seconds of each command; they take turns, so that a busy machine slows all of them."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in commands.values():
            seconds(arguments, environ)
        rounds = [{name: seconds(words, environ) for name, words in commands.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(one[name] for one in rounds) for name in commands}


def loaded(arguments: list[str]) -> set[str]:
    """The modules that a command loads."""
    words = [sys.executable, "-c", LISTING, *arguments[2:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return set(done.stderr.rpartition("modules: ")[2].split())


def main() -> int:
    """Print the figures."""
    commands = {
        **{f"check, {trainer}": check(name) for trainer, name in CONFIGS.items()},
        "check, card named, no prediction": check(CONFIGS["axolotl"], "--gpu", "rtx-4090", "--no-predict"),
        "check, the run predicted": check(CONFIGS["axolotl"], "--gpu", "rtx-4090"),
    }
    times = medians({"base": BASE, **commands})
    print(f"{'import yaml, click':<34}{times['base'] * 1000:5.0f} ms")
    heavy: set[str] = set()
    for name, arguments in commands.items():
        modules = loaded(arguments)
        ours = sum(module.partition(".")[0] == "vramwise" for module in modules)
        print(f"{name:<34}{times[name] * 1000:5.0f} ms  × {times[name] / times['base']:.2f}  {ours} modules")
        heavy |= modules & HEAVY
    print(f"{'heavy imports':<34}{', '.join(sorted(heavy)) or 'none'}")
    return 1 if heavy else 0


if __name__ == "__main__":
    sys.exit(main())
