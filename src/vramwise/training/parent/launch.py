"""How the worker is started: directly for one process, through torchrun for several.

Pure: from a plan and an environment to a command. The worker sets up sharding (FSDP2, DeepSpeed) from the config;
torchrun only starts the processes. For several nodes, run the same command on each, with torchrun's variables
(PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT) or under srun with one task per node.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from vramwise.errors import VramwiseError
from vramwise.training.plan import TrainPlan
from vramwise.units import whole_number

WORKER = "vramwise.training.worker.main"
_DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The machines of a run, and the number of this one."""

    count: int
    rank: int
    address: str | None
    port: int


def worker_command(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command line of one attempt."""
    worker = ["-m", WORKER, plan_path]
    if plan.gpus == 1 or launched_from_outside(env):
        return [sys.executable, *worker]
    return [*torchrun(sys.executable, plan.gpus, env), *worker]


def torchrun(python: str, gpus: int, env: Mapping[str, str]) -> list[str]:
    """Return torchrun's command for this node's share of the processes; what it runs follows."""
    return [python, "-m", "torch.distributed.run", *torchrun_options(gpus, find_nodes(env))]


def torchrun_options(gpus: int, nodes: Nodes) -> list[str]:
    """Return the options of torchrun: the processes here, and the address of the first node."""
    words = ["--max-restarts", "0", "--nproc-per-node", str(on_each(gpus, nodes))]
    if nodes.count == 1:
        return [*words, "--standalone"]
    words += ["--nnodes", str(nodes.count), "--node-rank", str(nodes.rank)]
    return [*words, "--master-addr", first_node(nodes), "--master-port", str(nodes.port)]


def accelerate_options(gpus: int, nodes: Nodes) -> list[str]:
    """Return the same options for `accelerate launch`; empty for one node."""
    if nodes.count == 1:
        return []
    on_each(gpus, nodes)
    words = ["--num_machines", str(nodes.count), "--machine_rank", str(nodes.rank)]
    return [*words, "--main_process_ip", first_node(nodes), "--main_process_port", str(nodes.port)]


def on_each(gpus: int, nodes: Nodes) -> int:
    """Return the number of processes per node; raises VramwiseError if they cannot be divided evenly."""
    if gpus % nodes.count:
        raise VramwiseError(f"{gpus} GPUs cannot be shared evenly by {nodes.count} nodes")
    return gpus // nodes.count


def first_node(nodes: Nodes) -> str:
    """Return the first node's address; raises VramwiseError if it is not set."""
    if nodes.address is None:
        raise VramwiseError(f"{nodes.count} nodes need the address of the first: set PET_MASTER_ADDR or MASTER_ADDR")
    return nodes.address


def launched_from_outside(env: Mapping[str, str]) -> bool:
    """Return whether `accelerate launch` or torchrun already started this process as one of several."""
    return env.get("WORLD_SIZE", "1") not in ("", "1") and "RANK" in env


def find_nodes(env: Mapping[str, str]) -> Nodes:
    """Return the nodes from torchrun's variables, then those of a Slurm step; else this machine alone."""
    count = _number(env, "PET_NNODES", "SLURM_STEP_NUM_NODES", default=1)
    rank = _number(env, "PET_NODE_RANK", "SLURM_NODEID", default=0)
    tasks = _number(env, "SLURM_STEP_NUM_TASKS", default=count)
    if "PET_NNODES" not in env and tasks != count:
        raise VramwiseError(f"srun started {tasks} tasks on {count} nodes: start one a node (--ntasks-per-node 1)")
    if not 0 <= rank < count:
        raise VramwiseError(f"node rank {rank} is not one of {count} nodes")
    address = env.get("PET_MASTER_ADDR") or env.get("MASTER_ADDR") or _first_slurm_node(env)
    port = _number(env, "PET_MASTER_PORT", "MASTER_PORT", default=_DEFAULT_PORT)
    return Nodes(count=count, rank=rank, address=address, port=port)


def _number(env: Mapping[str, str], *names: str, default: int) -> int:
    for name in names:
        text = env.get(name)
        if text:
            number = whole_number(text)
            if number is None:
                raise VramwiseError(f"{name}='{text}' is not a number")
            return number
    return default


def _first_slurm_node(env: Mapping[str, str]) -> str | None:
    """Return the first node of a list: `gpu[03-05,9]` → `gpu03`."""
    listed = env.get("SLURM_STEP_NODELIST", "")
    match = re.match(r"([^\[,]+)(?:\[(\w+))?", listed)
    return None if match is None else match[1] + (match[2] or "")
