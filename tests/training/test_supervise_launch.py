"""How the worker is started: one process, several, several nodes. No torch."""

import sys

import pytest
from plans import make_plan

from vramwise.errors import VramwiseError
from vramwise.training.parent.launch import worker_command

WORKER = ["-m", "vramwise.training.worker.main", "plan.json"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--max-restarts", "0"]


def command(tmp_path, gpus, **env):
    return worker_command(make_plan(tmp_path, gpus=gpus), "plan.json", env)


def test_one_process(tmp_path):
    assert command(tmp_path, 1) == [sys.executable, *WORKER]


def test_several_gpus(tmp_path):
    assert command(tmp_path, 4) == [*TORCHRUN, "--nproc-per-node", "4", "--standalone", *WORKER]


def test_inside_somebody_elses_launcher(tmp_path):
    assert command(tmp_path, 4, RANK="2", WORLD_SIZE="4") == [sys.executable, *WORKER]


TWO_NODES = ["--nproc-per-node", "4", "--nnodes", "2", "--node-rank", "1", "--master-addr"]


def test_nodes_by_torchruns_variables(tmp_path):
    found = command(tmp_path, 8, PET_NNODES="2", PET_NODE_RANK="1", PET_MASTER_ADDR="head", PET_MASTER_PORT="1234")
    assert found == [*TORCHRUN, *TWO_NODES, "head", "--master-port", "1234", *WORKER]


def test_nodes_by_slurm(tmp_path):
    slurm = {
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NODEID": "1",
        "SLURM_STEP_NODELIST": "gpu[03-04]",
    }
    assert command(tmp_path, 8, **slurm) == [*TORCHRUN, *TWO_NODES, "gpu03", "--master-port", "29500", *WORKER]


@pytest.mark.parametrize(
    ("gpus", "env", "message"),
    [
        (3, {"PET_NNODES": "2", "PET_MASTER_ADDR": "x"}, "3 GPUs cannot be shared evenly by 2 nodes"),
        (4, {"PET_NNODES": "2"}, "need the address of the first"),
        (4, {"PET_NNODES": "two"}, "'two' is not a number"),
        (4, {"PET_NNODES": "2", "PET_NODE_RANK": "2"}, "node rank 2 is not one of 2"),
        (4, {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "8"}, "start one a node"),
    ],
)
def test_what_cannot_work_is_said(tmp_path, gpus, env, message):
    with pytest.raises(VramwiseError, match=message):
        command(tmp_path, gpus, **env)
