"""A rank that has finished ends with its exit code, whatever the interpreter's own end would do."""

import os
import subprocess
import sys
from pathlib import Path

from installed import needs

pytestmark = needs("torch")

SOURCE = Path(__file__).parent.parent.parent / "src"
# What a backend's thread does to us at a bad moment: an abort while the interpreter is torn down.
RANK = """
import atexit, os, sys
import torch.distributed as distributed
from vramwise.training.worker.leaving import leave_done

class AbortsWhenTornDown:
    def __del__(self, abort=os.abort):
        abort()

kept = AbortsWhenTornDown()
distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
atexit.register(lambda: print("group left:", not distributed.is_initialized()))
sys.exit(leave_done(3))
"""


def end(tmp_path, world):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "WORLD_SIZE": world}
    words = [sys.executable, "-c", RANK, str(tmp_path / "meeting")]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600, check=False)


def test_a_finished_rank_ends_cleanly(tmp_path):
    done = end(tmp_path, world="2")
    assert (done.returncode, done.stdout) == (3, "group left: True\n"), done.stderr


def test_a_single_process_ends_as_python_does(tmp_path):
    done = end(tmp_path, world="1")
    assert done.returncode < 0, "the abort of this test does not fire, so it shows nothing"
    assert done.stdout == "group left: False\n"
