"""However an effective batch is divided, packed or spread over ranks, the losses are the same."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from installed import Later, needs
from tiny_runs import losses, make_folder, prepared, train_here, write_config
from vramwise.training.checkpoints import faults

pytestmark = needs("torch", "transformers")
torch = Later("torch")

SOURCE = Path(__file__).parent.parent.parent / "src"
AGREE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # 78 samples: the last batch of 4 is not full
    return make_folder(tmp_path_factory.mktemp("losses"), samples=78)


def run(folder, **changes):
    name = "-".join(f"{key}{value}" for key, value in changes.items())
    config = write_config(folder, f"{name or 'plain'}.yml", output_dir=str(folder / (name or "plain")), **changes)
    return losses(train_here(config))


@pytest.fixture(scope="module")
def undivided(folder):
    found = run(folder)
    assert len(found) == 20
    assert found[0] - found[-1] > 1, "nothing is learnt, so equal losses would say nothing"
    return found


@pytest.mark.parametrize(("micro", "accumulation"), [(2, 2), (1, 4)])
def test_micro_batch_against_accumulation(folder, undivided, micro, accumulation):
    found = run(folder, micro_batch_size=micro, gradient_accumulation_steps=accumulation)
    assert found == pytest.approx(undivided, abs=AGREE)


def test_constant_width_changes_nothing(folder, undivided):
    assert run(folder, pad_to_sequence_len=True) == pytest.approx(undivided, abs=AGREE)


def test_another_batch_does_change_the_losses(folder, undivided):
    found = run(folder, micro_batch_size=2)
    assert max(abs(one - other) for one, other in zip(found, undivided, strict=False)) > 0.01


def run_two_ranks(plan):
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "vramwise.training.worker.main",
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *words, str(plan)], capture_output=True, text=True, env=environment, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# 74 samples to train on: the last batch of 4 is not full here either. One run serves both tests: starting takes longest.
SAVING = {"save_steps": 5, "save_strategy": None, "val_set_size": 4, "eval_steps": 5, "load_best_model_at_end": True}


@pytest.fixture(scope="module")
def two_ranks(folder):
    """A run of two ranks, where another trainer has left a checkpoint named as the last, and best."""
    saved = folder / "ranks"
    (saved / "checkpoint-19").mkdir(parents=True)
    config = write_config(folder, "ranks.yml", output_dir=str(saved), micro_batch_size=2, **SAVING)
    ready = prepared(config, target={"gpus": 2})
    assert ready.plan.effective_batch_size == 4
    plan = folder / "ranks-plan.json"
    plan.write_text(ready.plan.to_json())
    run_two_ranks(plan)
    return saved


@pytest.mark.nightly
def test_two_ranks_against_one(folder, two_ranks):
    history = json.loads((two_ranks / "trainer_state.json").read_text())["log_history"]
    found = [entry["loss"] for entry in history if "loss" in entry]
    undivided = run(folder, **SAVING)
    assert len(found) == 19
    assert found[0] - found[-1] > 1, "nothing is learnt, so equal losses would say nothing"
    assert found == pytest.approx(undivided, abs=AGREE)


@pytest.mark.nightly
def test_two_ranks_save_one_checkpoint_beside_anothers(two_ranks):
    """Both know under which name, so that both load the best of them at the end."""
    assert sorted(path.name for path in two_ranks.glob("checkpoint-*")) == [
        "checkpoint-10",
        "checkpoint-15",
        "checkpoint-19",
        "checkpoint-19-vramwise",
        "checkpoint-5",
    ]
    assert list((two_ranks / "checkpoint-19").iterdir()) == []
    assert not faults(two_ranks / "checkpoint-19-vramwise")


@pytest.mark.parametrize(("attention", "rows"), [("sdpa", "micro"), ("eager", "micro"), ("sdpa", "one")])
def test_packed_against_unpacked(folder, attention, rows):
    """The same samples in each step, packed into rows and not: the same loss and the same gradients."""
    packed = packed_run(folder, attention, multipack_real_batches=rows == "micro")
    assert packed.data_collator.packing == rows
    batches, groups = list(packed.get_train_dataloader()), list(packed.get_train_dataloader().batch_sampler)
    # what the packed batches hold, one sample a row
    rows = [[sample for number in group for sample in packed.train_dataset[number]] for group in groups]
    plain = packed_run(folder, attention, sample_packing=None, pad_to_sequence_len=None)
    assert any(len(row) > 1 for number in groups[0] for row in [packed.train_dataset[number]])
    for index in range(3):
        one = loss_and_gradient(packed, batches[index])
        other = loss_and_gradient(plain, plain.data_collator([(sample,) for sample in rows[index]]))
        assert one[0] == pytest.approx(other[0], abs=1e-5)
        assert torch.allclose(one[1], other[1], atol=1e-5)


def test_packed_training_against_unpacked(folder):
    """20 steps: unpacked rows fed in exactly the packed order, with accumulation over one sample at a time."""
    packed = packed_run(folder, "sdpa")
    loader = packed.get_train_dataloader()
    groups = [[sample for number in group for sample in packed.train_dataset[number]] for group in loader.batch_sampler]
    plain = packed_run(folder, "sdpa", sample_packing=None, pad_to_sequence_len=None)
    plain.model.load_state_dict(packed.model.state_dict())
    found = {}
    for name, trainer, batches in (
        ("packed", packed, list(loader)),
        ("plain", plain, [plain.data_collator([(sample,) for sample in group]) for group in groups]),
    ):
        optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=0.01)
        found[name] = []
        for step in range(20):
            optimizer.zero_grad()
            loss, _ = loss_and_gradient(trainer, batches[step % len(batches)])
            optimizer.step()
            found[name].append(loss)
    assert found["packed"] == pytest.approx(found["plain"], abs=AGREE)
    assert found["packed"][0] - found["packed"][-1] > 1


def packed_run(folder, attention, **changes):
    from vramwise.training.worker.engine_transformers import make_trainer
    from vramwise.training.worker.main import run_of
    from vramwise.training.worker.progress import Progress

    torch.set_num_threads(1)
    settings = {"sample_packing": True, "pad_to_sequence_len": True, "attn_implementation": attention, **changes}
    config = write_config(folder, "packed.yml", output_dir=str(folder / "packed"), micro_batch_size=2, **settings)
    plan = prepared(config).plan
    return make_trainer(run_of(plan), replace(plan, seed=5), progress=Progress())


def loss_and_gradient(trainer, batch):
    model = trainer.model
    model.train()
    model.zero_grad()
    count = trainer._get_num_items_in_batch([batch], torch.device("cpu"))
    loss = trainer.compute_loss(model, dict(batch), num_items_in_batch=count)
    loss.backward()
    return loss.item(), model.get_input_embeddings().weight.grad.clone()


def test_packed_micro_batches_train_alike(folder):
    """Packing keeps the promise about micro-batches too."""
    settings = {"sample_packing": True, "pad_to_sequence_len": True, "max_steps": 8, "num_epochs": 4}
    one = run(folder, **settings, micro_batch_size=4)
    other = run(folder, **settings, micro_batch_size=1, gradient_accumulation_steps=4)
    assert other == pytest.approx(one, abs=AGREE)
