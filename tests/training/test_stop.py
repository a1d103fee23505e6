"""Signals in the worker: the step is finished and saved, and nothing else is waited for."""

import signal
from types import SimpleNamespace

from installed import needs

pytestmark = needs("torch", "transformers")


def test_a_stopped_run_saves_and_does_not_evaluate_first():
    from transformers import TrainerControl

    from vramwise.training.worker.stop import StopOnSignal

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        stop = StopOnSignal()
        control = TrainerControl(should_evaluate=True)
        args = SimpleNamespace(world_size=1)
        stop.on_step_end(args, None, control)
        assert control.should_evaluate
        signal.raise_signal(signal.SIGINT)
        stop.on_step_end(args, None, control)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (control.should_save, control.should_training_stop, control.should_evaluate) == (True, True, False)
    assert stop.exit_code == 130
