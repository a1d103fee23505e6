"""The worker process: an out-of-memory while loading is told apart, and the guard knows the rows."""

import json

import pytest

from installed import Later, needs
from tiny_runs import make_folder, prepared, write_config
from vramwise.training.guard.memory_log import read_log
from vramwise.training.parent.recover import next_attempt
from vramwise.training.plan import EXIT_OUT_OF_MEMORY
from vramwise.training.worker import main as worker

pytestmark = needs("torch", "transformers", "accelerate")
torch = Later("torch")
engine_transformers = Later("vramwise.training.worker.engine_transformers")


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


def test_an_out_of_memory_while_loading_halves_nothing(folder, monkeypatch):
    def too_large(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB.")

    monkeypatch.setattr("vramwise.training.worker.engine_transformers.load_model", too_large)
    plan = prepared(write_config(folder)).plan
    assert worker.train_by(plan) == EXIT_OUT_OF_MEMORY
    record = json.loads((folder / "out" / "oom-1.json").read_text())
    assert (record["phase"], record["requested_bytes"]) == ("load", 8 * 1024**3)
    assert plan.micro_batch_size > 1
    assert next_attempt(plan, record["phase"], None) is None


def test_the_guard_compares_with_the_rows_as_they_are(folder, capsys):
    """Trained on the CPU, but planned for a card: the prediction is made for the widths of the data."""
    path = write_config(folder, sequence_len=2048, max_steps=2)
    plan = prepared(path, target={"gpu": "H200"}).plan
    assert worker.train_by(plan) == 0
    (start,) = read_log(folder / "out" / "memory.jsonl").of_kind("start")
    assert 0 < start["predicted"]["peak_allocated_bytes"] < plan.predicted.peak_allocated_bytes / 2
    assert "memory with the lengths of this data" in capsys.readouterr().out


def test_the_lengths_are_those_of_the_batches(folder):
    """In the order of the first epoch, blank rows as one token."""
    from vramwise.training.worker.main import run_of
    from vramwise.training.worker.progress import Progress

    path = write_config(folder, val_set_size=0.1, eval_steps=5, eval_batch_size=3, micro_batch_size=8)
    plan = prepared(path).plan
    trainer = engine_transformers.make_trainer(run_of(plan), plan, progress=Progress())
    lengths, eval_lengths = trainer.batch_lengths()
    assert len(lengths) == 40  # 36 rows, filled up to 5 batches of 8
    widths = [max(lengths[start : start + 8]) for start in range(0, 40, 8)]
    seen = [int(batch["attention_mask"].sum(1).max()) for batch in trainer.get_train_dataloader()]
    assert widths == seen
    assert lengths[-4:] == [1] * 4
    held = [int(batch["attention_mask"].sum(1).max()) for batch in trainer.get_eval_dataloader()]
    assert [max(eval_lengths[start : start + 3]) for start in range(0, 6, 3)] == held
    assert trainer.steps_of_run() == 5
