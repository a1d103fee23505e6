"""The time left, as `train` prints it."""

from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

from vramwise.training.worker import progress


@pytest.mark.parametrize(("compiled", "shown"), [(False, "181 min left"), (True, "2 min left")])
def test_steps_that_compile_do_not_count_for_the_time_left(monkeypatch, capsys, compiled, shown):
    """Two steps of 600 seconds, then steps of one second: after the tenth, 90 are left."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    one, args = progress.Progress(), SimpleNamespace(torch_compile=compiled)
    state = SimpleNamespace(global_step=0, max_steps=100, is_world_process_zero=True)
    one.on_train_begin(args, state, None)
    for step in range(10):
        state.global_step = step
        one.on_step_begin(args, state, None)
        now[0] += 600 if step < 2 else 1
        state.global_step = step + 1
        one.on_log(args, state, None, logs={"loss": 1.0})
    lines = capsys.readouterr().out.splitlines()
    assert ("left" in lines[1]) is not compiled
    assert lines[-1].endswith(shown)
