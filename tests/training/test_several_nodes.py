"""The scripts of examples/several-gpus: two nodes of one CPU rank each, on this machine, under a stand-in for Slurm."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from installed import needs
from recovering_runs import CONFIG, STEPS

pytestmark = [needs("torch", "transformers", "accelerate"), pytest.mark.nightly]

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ROOT / "examples" / "several-gpus"
# As srun does it: one task a node, with the variables of a step.
SRUN = """#!/bin/bash
shift  # --kill-on-bad-exit
for node in 0 1; do
  SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=$node SLURM_STEP_NODELIST=localhost "$@" &
done
wait -n && wait -n
"""
VRAMWISE = f'#!/bin/bash\nexec {sys.executable} -m vramwise "$@"\n'


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def env(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("vramwise", VRAMWISE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    config = tmp_path / "nodes.yml"
    config.write_text(f"{CONFIG}output_dir: {tmp_path / 'out'}\n")
    return os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "CONFIG": str(config),
        "GPUS": "2",
        "VRAMWISE_OPTIONS": "--random-weights --torch 2.13",
        "MASTER_PORT": str(free_port()),
    }


def trained(folder):
    history = json.loads((folder / "out" / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def test_slurm(tmp_path, env):
    words = ["bash", str(SCRIPTS / "train.sbatch")]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(trained(tmp_path)) == STEPS
    assert (tmp_path / "out" / "memory.rank1.jsonl").is_file()


def test_on_each_node(tmp_path, env):
    words = ["bash", str(SCRIPTS / "on-each-node.sh")]
    env |= {"FIRST_NODE": "127.0.0.1", "PORT": env["MASTER_PORT"]}
    nodes = [
        subprocess.Popen(words, env=env | {"NODE_RANK": str(node)}, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for node in (0, 1)
    ]
    errors = [node.communicate(timeout=500)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], errors
    assert len(trained(tmp_path)) == STEPS
