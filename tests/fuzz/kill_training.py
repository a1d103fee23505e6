"""Kill -9 a training over and over, some of the times in the middle of a save, beside another trainer's checkpoints.

`python tests/fuzz/kill_training.py --kills 100 --saves 10`: trains examples/tiny (20 steps, a checkpoint at each) in a
folder that holds checkpoints of another trainer, some under the names that this run would take. After every kill and at
the end of every run: theirs are byte for byte as they were, no whole checkpoint of ours is lost, and at the end the
losses are those of a run that nobody killed, to the last digit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TINY = ROOT / "examples" / "tiny"
WORKER = ROOT / "tests" / "training" / "faulty_worker.py"
STEPS = 20
CONFIG = f"""
base_model: {TINY / "model"}
datasets: [{{path: {TINY / "samples.jsonl"}, type: alpaca}}]
val_set_size: 0.05
sequence_len: 64
pad_to_sequence_len: true
micro_batch_size: 4
gradient_accumulation_steps: 1
eval_batch_size: 4
max_steps: {STEPS}
eval_steps: 4
save_steps: 1
save_total_limit: 2
optimizer: adamw_torch
learning_rate: 0.003
logging_steps: 1
"""
# Names that the run would take itself, one of them unfinished, and one that is far ahead of it.
OTHERS = {"checkpoint-3": True, "checkpoint-8": True, "checkpoint-12": False, "checkpoint-500": True}


ASIDE = ".vramwise-saving"
State = tuple[int, int]


class Server:
    """Runs workers in forks of one process that has imported everything."""

    def __init__(self) -> None:
        env = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        assert self._answer("ready") == 0

    def start(self, folder: Path) -> int:
        """Train in the folder, from the last checkpoint on; the process."""
        from vramwise.training.parent.prepare import TrainOptions, prepare
        from vramwise.training.plan import write_plan

        config = folder / "config.yml"
        config.write_text(CONFIG + f"output_dir: {folder / 'out'}\n")
        plan = prepare(str(config), TrainOptions(random_weights=True, resume=True)).plan
        self._process.stdin.write(f"{write_plan(plan)}\n")
        self._process.stdin.flush()
        return self._answer("pid")

    def code(self) -> int:
        """Its exit code, when it has ended."""
        return self._answer("code")

    def close(self) -> None:
        """End."""
        self._process.stdin.close()
        self._process.wait(300)

    def _answer(self, expected: str) -> int:
        word, number = self._process.stdout.readline().split()
        assert word == expected  # never kill a wrong number
        return int(number)


def put_others(out: Path) -> str:
    """Another trainer's checkpoints, as transformers lays them out; their hash."""
    dice = random.Random(5)
    for name, finished in OTHERS.items():
        folder = out / name
        folder.mkdir(parents=True)
        for file in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (folder / file).write_bytes(dice.randbytes(dice.randrange(100, 5000)))
        if finished:
            (folder / "trainer_state.json").write_text(json.dumps({"global_step": int(name[11:]), "log_history": []}))
    return hash_of_others(out)


def hash_of_others(out: Path) -> str:
    """Names, contents and times of everything in their folders."""
    digest = hashlib.sha256()
    for name in OTHERS:
        for path in sorted([out / name, *(out / name).rglob("*")]):
            digest.update(f"{path.relative_to(out)} {path.lstat().st_mtime_ns} {path.lstat().st_mode}\n".encode())
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def losses(out: Path) -> dict[str, dict[int, float]]:
    """Every loss of training and evaluation that a finished run wrote down."""
    history = json.loads((out / "trainer_state.json").read_text())["log_history"]
    return {name: {entry["step"]: entry[name] for entry in history if name in entry} for name in ("loss", "eval_loss")}


def reached(out: Path) -> int:
    """The step of the last whole checkpoint of ours; 0 for none."""
    from vramwise.training.checkpoints import latest_whole, step_of

    last = latest_whole(out).folder
    return 0 if last is None else step_of(Path(last)) or 0


@dataclass
class Count:
    """What was done so far."""

    kills: int = 0
    in_saves: int = 0
    runs: int = 0


class Killer:
    """One seed's kills."""

    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        self._server = server
        self._folder = folder
        self._dice = random.Random(seed)
        self.count = Count()
        started = time.monotonic()
        (folder / "undisturbed").mkdir()
        server.start(folder / "undisturbed")
        assert server.code() == 0
        self._expected = losses(folder / "undisturbed" / "out")
        assert sorted(self._expected["loss"]) == list(range(1, STEPS + 1))
        self._step_seconds = (time.monotonic() - started) / STEPS

    def kill(self, kills: int, in_saves: int) -> None:
        """Until there were so many kills, and among them so many in the middle of a save."""
        while self.count.kills < kills or self.count.in_saves < in_saves:
            self._one_run(kills, in_saves)

    def _one_run(self, kills: int, in_saves: int) -> None:
        """One run from its beginning to its end, killed on the way."""
        self.count.runs += 1
        folder = self._folder / f"run-{self.count.runs}"
        out = folder / "out"
        others = put_others(out)
        saved = 0
        while True:
            before = state_of(out / ASIDE)  # a save that was cut short stays there until the next one begins
            pid = self._server.start(folder)
            want = self.count.kills < kills or self.count.in_saves < in_saves
            if want:
                saving = self.count.in_saves < in_saves and self._dice.random() < 0.5
                self._wait_and_kill(pid, out, saved, before, saving=saving)
            code = self._server.code()
            assert hash_of_others(out) == others, "another trainer's checkpoint was touched"
            if code != -signal.SIGKILL:
                assert code == 0, f"the worker ended with {code}"
                break
            self.count.kills += 1
            self.count.in_saves += state_of(out / ASIDE) not in (None, before)
            now = reached(out)
            assert now >= saved, f"a kill lost a whole checkpoint: {now} after {saved}"
            saved = now
        assert losses(out) == self._expected, "the losses are not those of an undisturbed run"

    def _wait_and_kill(self, pid: int, out: Path, saved: int, before: State | None, *, saving: bool) -> None:
        """While loading, some steps on, or (`saving`) as soon as a save is seen under way, at a random moment of it."""
        if saving:
            wait_for(lambda: state_of(out / ASIDE) not in (None, before) or ended(pid))
            time.sleep(self._dice.random() * 0.03)
        else:
            target = min(STEPS, saved + self._dice.choice((0, 1, 1, 2, 3)))
            wait_for(lambda: target == saved or highest(out) >= target or ended(pid))
            time.sleep(self._dice.random() * self._step_seconds)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def state_of(folder: Path) -> State | None:
    """Which folder it is and when it was last changed; None where there is none."""
    try:
        found = folder.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def highest(out: Path) -> int:
    """The highest step that a checkpoint of ours has, whole or not; cheap, for waiting."""
    from vramwise.training.checkpoints import checkpoints, is_complete, step_of

    return max((step_of(folder) or 0 for folder in checkpoints(out) if is_complete(folder)), default=0)


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits to be asked for its code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(happened, seconds: float = 600) -> None:
    """Until it has."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.001)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--saves", type=int, default=10, help="kills in the middle of a save, at least")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            killer = Killer(server, Path(folder), asked.seed)
            killer.kill(asked.kills, asked.saves)
            found = killer.count
    finally:
        server.close()
    sys.stdout.write(
        f"{found.kills} kills, {found.in_saves} in the middle of a save, in {found.runs} runs: the others' checkpoints "
        "untouched, no whole checkpoint lost, losses identical\n"
    )


if __name__ == "__main__":
    main()
