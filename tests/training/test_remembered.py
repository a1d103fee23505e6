"""A resumed run begins with the batches that were found to fit, unless something that decides memory has changed."""

from dataclasses import replace

import pytest

from tiny_runs import make_folder, prepared, write_config
from vramwise.training.parent import refusing
from vramwise.training.plan import write_plan


@pytest.fixture(autouse=True)
def _everything_installed(monkeypatch):
    monkeypatch.setattr(refusing, "missing", lambda modules: [])


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


def halved_and_killed(path, **options):
    """The plan of the second attempt stands in the folder, as a kill −9 during it leaves it."""
    plan = prepared(path, **options).plan
    eval_batch = None if plan.eval_batch_size is None else plan.eval_batch_size // 2
    second = plan.restarted(
        resume_from=None, micro_batch_size=2, gradient_accumulation_steps=2, eval_batch_size=eval_batch
    )
    write_plan(second)
    return plan


def batches(plan):
    return plan.micro_batch_size, plan.gradient_accumulation_steps, plan.eval_batch_size


def test_a_resumed_run_begins_with_what_was_found(folder):
    path = write_config(folder)
    first = halved_and_killed(path)
    found = prepared(path, resume=True)
    assert batches(first) == (4, 1, None)
    assert batches(found.plan) == (2, 2, None)
    assert found.plan.effective_batch_size == first.effective_batch_size
    (said,) = [one for one in found.plan.decisions if one.name == "resumed"]
    assert said.value == "micro 2 × accumulation 2"
    assert "micro 4 × accumulation 1 had run out of memory" in said.why


def test_and_again_after_another_kill(folder):
    path = write_config(folder)
    halved_and_killed(path)
    write_plan(prepared(path, resume=True).plan)
    assert batches(prepared(path, resume=True).plan) == (2, 2, None)


def test_the_eval_batch_is_remembered_too(folder):
    path = write_config(folder, val_set_size=0.1, eval_steps=5, eval_batch_size=8)
    plan = prepared(path).plan
    write_plan(plan.restarted(resume_from=None, eval_batch_size=4))
    assert batches(prepared(path, resume=True).plan) == (4, 1, 4)


def test_a_fresh_start_begins_as_written(folder):
    path = write_config(folder)
    halved_and_killed(path)
    assert batches(prepared(path).plan) == (4, 1, None)


@pytest.mark.parametrize(
    "changes",
    [{"gradient_checkpointing": True}, {"sequence_len": 32}, {"optimizer": "sgd"}, {"gradient_accumulation_steps": 2}],
)
def test_changed_settings_are_tried_as_written(folder, changes):
    path = write_config(folder)
    halved_and_killed(path)
    path = write_config(folder, **changes)
    assert prepared(path, resume=True).plan.micro_batch_size == 4


def test_settings_that_need_no_memory_may_change(folder):
    path = write_config(folder)
    halved_and_killed(path)
    path = write_config(folder, logging_steps=3, num_epochs=2, save_strategy="epoch")
    assert prepared(path, resume=True).plan.micro_batch_size == 2


def test_another_card_or_limit_is_tried_as_written(folder):
    path = write_config(folder)
    halved_and_killed(path, target={"gpu": "RTX 4090"})
    assert prepared(path, resume=True, target={"gpu": "RTX 4090"}).plan.micro_batch_size == 2
    assert prepared(path, resume=True, target={"gpu": "H200"}).plan.micro_batch_size == 4
    assert prepared(path, resume=True, target={"gpu": "RTX 4090"}, memory_limit_bytes=2**34).plan.micro_batch_size == 4


def test_an_unreadable_plan_is_no_obstacle(folder):
    path = write_config(folder)
    plan = halved_and_killed(path)
    (folder / "out" / "vramwise.json").write_text("{}")
    assert batches(prepared(path, resume=True).plan) == batches(replace(plan))
