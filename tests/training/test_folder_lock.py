"""The lock of a run's folder: a run that was killed leaves a worker, and the next run waits until it has saved."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vramwise.errors import VramwiseError
from vramwise.training.parent import folder_lock
from vramwise.training.parent.folder_lock import locked, wait_for_worker
from vramwise.training.parent.resuming import Wanted, decide_start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are no such locks, or no /proc")

SOURCE = Path(__file__).parent.parent.parent / "src"
WORKER = """
import sys, time
from vramwise.training import checkpoints
out, seconds = sys.argv[1], float(sys.argv[2])
open(out + "/ready", "w").close()
time.sleep(seconds)
(checkpoints.begin(out, 7) / "model.safetensors").write_bytes(b"x")
checkpoints.finish(out, 7)
"""
SUPERVISOR = """
import subprocess, sys
from vramwise.training.parent.folder_lock import locked
with locked(sys.argv[1]) as lock:
    subprocess.run([sys.executable, "-c", sys.argv[3], sys.argv[1], sys.argv[2]], pass_fds=(lock,))
"""


def begun(folder, seconds):
    """A supervisor with a worker that saves after some seconds."""
    words = [sys.executable, "-c", SUPERVISOR, str(folder), str(seconds), WORKER]
    process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(SOURCE)}, start_new_session=True)
    end = time.monotonic() + 30
    while not (folder / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("reaped", [True, False])
def test_the_next_run_waits_for_the_worker_of_a_killed_one(tmp_path, capsys, reaped):
    process = begun(tmp_path, 1.5)
    process.send_signal(signal.SIGKILL)
    if reaped:
        process.wait()
    wanted = Wanted(named=None, named_by="--resume", last=True, hosted=False, force=False)
    start = decide_start(wanted, str(tmp_path), {})
    assert Path(start.checkpoint).name == "checkpoint-7"
    assert "in use by the worker of a run that was killed: waiting up to 120 s" in capsys.readouterr().err
    with locked(tmp_path):
        pass
    process.wait()


def test_it_waits_no_longer_than_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_lock, "_SECONDS", 0.3)
    process = begun(tmp_path, 3)
    process.kill()
    process.wait()
    with pytest.raises(VramwiseError, match="in use by another run"), locked(tmp_path):
        pass


def test_a_living_run_is_not_waited_for(tmp_path, capsys):
    process = begun(tmp_path, 60)
    try:
        before = time.monotonic()
        wait_for_worker(tmp_path)
        with pytest.raises(VramwiseError, match="in use by another run"), locked(tmp_path):
            pass
        assert time.monotonic() - before < 5
        assert capsys.readouterr().err == ""
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("text", ["", "{", '{"pid": "x"}', "[]", '{"pid": -1, "host": ""}'])
def test_a_lock_file_that_says_nothing_is_a_living_run(tmp_path, text, capsys):
    with locked(tmp_path):
        (tmp_path / folder_lock.LOCK_FILE).write_text(text)
        with pytest.raises(VramwiseError, match="in use by another run"), locked(tmp_path):
            pass
    assert capsys.readouterr().err == ""
