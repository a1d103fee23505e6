"""Two ranks on the CPU (gloo), started by torchrun: what happens to one happens to all, and the losses stay."""

import json
import sys

import pytest

from installed import needs
from recovering_runs import CONFIG, STEPS
from supervised_runs import WORKER, environment, losses
from vramwise.opening.options import Options
from vramwise.training.parent.launch import torchrun
from vramwise.training.parent.measured import read_report
from vramwise.training.parent.prepare import TrainOptions, prepare
from vramwise.training.parent.supervise import supervise

pytestmark = [needs("torch", "transformers", "accelerate"), pytest.mark.nightly]


def plan_in(folder, **options):
    config = folder / "ranks.yml"
    config.write_text(CONFIG + f"output_dir: {folder / 'out'}\n")
    target = Options(torch="2.13", gpus=2)
    return prepare(str(config), TrainOptions(target=target, random_weights=True, **options)).plan


def train(folder, said, faults, **options):
    """Train with two ranks; the exit code."""

    def command(plan, path, env):
        return [*torchrun(sys.executable, plan.gpus, env), WORKER, path]

    env = environment(**faults) | {"CUDA_VISIBLE_DEVICES": ""}
    return supervise(plan_in(folder, **options), say=said.append, command=command, env=env)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train(folder, [], {}) == 0
    assert sorted(losses(folder)) == list(range(1, STEPS + 1))
    return losses(folder)


def test_an_out_of_memory_on_one_rank_restarts_all_with_the_same_effective_batch(tmp_path, undisturbed):
    said = []
    assert train(tmp_path, said, {"micro": 2, "from": 3, "rank": 1}) == 0
    assert losses(tmp_path) == pytest.approx(undisturbed, abs=1e-4)
    assert any("on rank 1 (micro-batch 4)" in line for line in said)
    restarts = [line for line in said if line.startswith("trying again")]
    assert len(restarts) == 1
    assert "4 × 1 → 2 × 2" in restarts[0]
    record = json.loads((tmp_path / "out" / "oom-1.json").read_text())
    assert record["rank"] == 1
    assert {path.name for path in (tmp_path / "out").glob("memory*.jsonl")} == {"memory.jsonl", "memory.rank1.jsonl"}
    assert len(read_report(tmp_path / "out").attempts) == 2


def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_from_a_checkpoint(tmp_path, undisturbed):
    said = []
    faults = {"kill": 1, "at": 4}
    assert train(tmp_path, said, faults) != 0
    assert any("go on from it with --resume" in line for line in said)
    assert train(tmp_path, said, faults, resume=True) == 0
    assert losses(tmp_path) == pytest.approx(undisturbed, abs=1e-4)
