"""The short form of `tests/fuzz/kill_training.py`: a few kills, one of them in the middle of a save."""

import importlib.util
import sys
from pathlib import Path

import pytest

from installed import needs

pytestmark = needs("torch", "transformers", "accelerate")

SCRIPT = Path(__file__).parent.parent / "fuzz" / "kill_training.py"


@pytest.mark.nightly
def test_kills_beside_another_trainers_checkpoints(tmp_path):
    spec = importlib.util.spec_from_file_location("kill_training", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # its dataclasses look themselves up there
    spec.loader.exec_module(script)
    server = script.Server()
    try:
        killer = script.Killer(server, tmp_path, seed=2)
        killer.kill(3, 1)
    finally:
        server.close()
    assert killer.count.kills >= 3
    assert killer.count.in_saves >= 1
