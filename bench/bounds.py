"""CPU time and memory of the commands on hostile inputs, against the bounds: 10 s (`fit` 20 s) and 1 GiB.

Each command runs in a process of its own. CPU time is that of the whole tree; memory is the largest sum of resident
memory over the tree, looked at 30 times a second (Linux), and at least the peak of one process. Exit code: 1 where
a command is over a bound, prints a traceback, or exits with another code than 0, 1 or 2.

    python bench/bounds.py [--only WORDS] [--new | --issue | --readers]
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hostile_again import AGAIN
from hostile_inputs import ISSUE, NEW, Make
from hostile_readers import READERS, REPRODUCERS

ROOT = Path(__file__).resolve().parent.parent
SECONDS = {"fit": 20.0}
USUAL_SECONDS = 10.0
MEMORY_MIB = 1024
_GIVES_UP_SECONDS = 120
_LOOKS_EVERY_SECONDS = 0.03


@dataclass(frozen=True)
class Outcome:
    """What a command took and said."""

    seconds: float
    memory_mib: float
    code: int
    said: str

    def fault(self, verb: str) -> str:
        """What is over, or ""."""
        if "Traceback" in self.said or self.code not in (0, 1, 2):
            return "CRASH"
        most = SECONDS.get(verb, USUAL_SECONDS)
        over = [*(["CPU"] if self.seconds > most else []), *(["MEMORY"] if self.memory_mib > MEMORY_MIB else [])]
        return "over: " + " ".join(over) if over else ""


def main() -> int:
    """Measure the inputs that are asked for and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only inputs whose name has these words")
    parser.add_argument("--issue", action="store_true", help="only the inputs that the bounds were asked for with")
    parser.add_argument("--new", action="store_true", help="only the others")
    parser.add_argument("--readers", action="store_true", help="only scripts, notebooks and shell scripts")
    chosen = parser.parse_args()
    inputs = {**({} if chosen.new else ISSUE), **({} if chosen.issue else {**NEW, **AGAIN})}
    readers = {**REPRODUCERS, **READERS}
    inputs = readers if chosen.readers else inputs if chosen.issue else {**inputs, **readers}
    faults = 0
    print(f"{'input':52} {'CPU s':>6} {'MiB':>6} {'exit':>4}        said")
    for name, make in inputs.items():
        if chosen.only not in name:
            continue
        if make is None:
            print(f"{name:52} {'its file is not here':>18}")
            continue
        verb, outcome = measure(make)
        fault = outcome.fault(verb)
        faults += bool(fault)
        first = outcome.said.split("\n", 1)[0][:110]
        print(
            f"{name:52} {outcome.seconds:6.1f} {outcome.memory_mib:6.0f} {outcome.code:4} {fault or 'OK':6} {first}",
            flush=True,
        )
    print(f"{faults} over" if faults else "all within bounds")
    return 1 if faults else 0


def measure(make: Make) -> tuple[str, Outcome]:
    """Make one input, run its command on it and take the measures."""
    with tempfile.TemporaryDirectory() as name:
        # In a process of its own too: making some of them takes more memory than reading them may.
        maker = os.fork()
        if maker == 0:
            made = make(Path(name))
            (Path(name) / "command").write_text("\n".join(made))
            os._exit(0)
        os.waitpid(maker, 0)
        command = (Path(name) / "command").read_text().split("\n")
        return command[0], run(command, Path(name))


def run(command: list[str], folder: Path) -> Outcome:
    """The outcome of one command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "vramwise", *command],
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        peak, began, ended = 0.0, time.monotonic(), 0
        while not ended:
            peak = max(peak, tree_mib(process.pid))
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if not ended and time.monotonic() - began > _GIVES_UP_SECONDS:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(_LOOKS_EVERY_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    text = (folder / "said").read_bytes().decode("utf-8", "replace").strip()
    lines = [line for line in text.split("\n") if line.startswith(("note: ", "error: "))] or text.split("\n")
    shown = text if "Traceback" in text else lines[0].replace(str(folder) + "/", "")
    return Outcome(used.ru_utime + used.ru_stime, max(peak, own_mib(used)), process.returncode, shown)


def own_mib(used: resource.struct_rusage) -> float:
    """The peak of one process of the tree, as the kernel has it."""
    return used.ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def tree_mib(root: int) -> float:
    """What a process and all below it have in memory now; 0 where there is no /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
    tree = {root}
    for _ in range(4):
        tree |= {pid for pid, parent in parents.items() if parent in tree}
    return sum(map(_resident_mib, tree))


def _resident_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
    except (OSError, IndexError, ValueError):
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
