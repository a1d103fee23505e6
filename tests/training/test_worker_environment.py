"""What the training process finds in its environment."""

from vramwise.training.parent.decide import worker_environment


def test_threads_that_wait_sleep_unless_the_user_says_otherwise():
    assert worker_environment({}, {})["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_WAIT_POLICY" not in worker_environment({}, {"OMP_WAIT_POLICY": "ACTIVE"})


def test_the_allocator_of_the_plan_wins_over_the_environment():
    chosen = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert worker_environment(chosen, {"PYTORCH_ALLOC_CONF": ""}).items() >= chosen.items()
