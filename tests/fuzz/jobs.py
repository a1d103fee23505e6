"""Worker processes: start, watch, and carry on after one that hung or died."""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from tests.fuzz.bench import LIMIT_OF_FIT_S, Failure
from tests.fuzz.failures import Found
from tests.fuzz.seeds import ROOT

# The timer inside a worker cannot interrupt C code: this much processor time for one execution, seen from outside.
HUNG_S = 2 * LIMIT_OF_FIT_S
# So long asleep without an end: it waits for something. On a busy machine one that only waits for its turn is awake.
_ASLEEP_S = 60


def run_worker(target, asked, *, fork=False):
    """One worker to its end; what it found. One that hangs or dies is a failure of the input it was at.

    `fork`: of this process, which has imported all that a worker needs: for many short ones.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        result = Path(folder) / "result"
        asked = {**asked, "target": target.name, "progress": str(Path(folder) / "progress"), "result": str(result)}
        errors = Path(folder) / "stderr"
        process = _Forked(asked, errors) if fork else _started(asked, errors)
        hung, spent = _watch(process, Path(asked["progress"]))
        said = errors.read_text(encoding="utf-8", errors="replace")
        if process.returncode == 0 and result.exists():
            return json.loads(result.read_text(encoding="utf-8"))
        done = _ended(target, asked, said, "hung" if hung else f"died ({process.returncode})")
        return {"peak_rss": 0, "slowest": HUNG_S if hung else 0.0, "cpu": spent, **done}


def _started(asked, errors):
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with errors.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", json.dumps(asked)],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
        )


class _Forked:
    """A worker that is a fork of this process, with the methods of a Popen."""

    def __init__(self, asked, errors):
        self._process = get_context("fork").Process(target=_in_fork, args=(asked, errors))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def wait(self, timeout):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a fork", timeout)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self._process.kill()


def _in_fork(asked, errors):
    from tests.fuzz.worker import main

    for name, number in ((errors, 2), (os.devnull, 1)):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
    main([json.dumps({**asked, "forked": True})])


def _watch(process, progress):
    """Wait; whether it had to be ended because one execution would not, and the processor time it took."""
    last, since, used, spent = b"", time.monotonic(), 0.0, 0.0
    while True:
        try:
            process.wait(timeout=0.5)
            return False, spent
        except subprocess.TimeoutExpired:
            pass
        now = progress.read_bytes() if progress.exists() else b""
        awake, spent = _state(process.pid)
        if now != last:
            last, since, used = now, time.monotonic(), spent
        elif awake:
            since = time.monotonic()
        if spent - used > HUNG_S or time.monotonic() - since > _ASLEEP_S:
            process.send_signal(signal.SIGABRT)  # faulthandler says where it was
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            return True, spent


def _state(pid):
    """Whether a process runs or is ready to, and its processor time so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return True, 0.0
    return fields[0] == "R", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ended(target, asked, said, how):
    """The failure of a worker that did not come back."""
    frames = re.findall(r'vramwise/([^"]+)", line \d+ in (\S+)', said)
    place = ":".join(frames[0]) if frames else said.strip()[-80:] or "nowhere"
    failure = Failure(how, place, said[-3000:])
    found = Found(asked["failures"], target)
    index = _index(Path(asked["progress"]))
    if index is None:
        found.say(failure, name="before the first execution", check="", argv=())
        return {"executions": 0, "failures": found.lines}
    if "files" in asked:
        file, check = divmod(index, len(target.checks))
        found.say(failure, name=asked["files"][file], check=list(target.checks)[check], argv=())
        return {"executions": index + 1, "failures": found.lines}
    data, check = target.case(asked["seed"], index)
    found.keep(failure, data, check=check, seed=asked["seed"], index=index)
    return {"executions": index - asked["start"] + 1, "failures": found.lines}


def _index(progress):
    data = progress.read_bytes() if progress.exists() else b""
    return struct.unpack("q", data)[0] if len(data) == 8 else None
