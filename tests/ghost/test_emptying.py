"""When the cache is emptied: by evaluation, every so many steps, and around evaluations."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.loops.steps import Emptying
from vramwise.timeline import Action

LORA = next(case for case in cases(BUNDLED) if case.name == "lora_llama8b_s1024_b1_nogc")
MODEL = replace(LORA.model, num_hidden_layers=2)
EVAL = {"evaluates": True, "eval_batch_size": 2, "eval_sequence_len": 64, "eval_steps": 2.0}


def places(steps=4, **changes) -> list[tuple[str, int]]:
    """The phase in which each emptying happens, loading apart."""
    run = LORA.run.changed(sequence_len=64, **changes)
    found, phase = [], None
    timeline = unroll(ghost_run(run, MODEL, gpu=H200, steps=steps)[0])
    for event in timeline.events:
        if event.action == Action.PHASE:
            phase = timeline.phases[event.tag]
        elif event.action == Action.EMPTY_CACHE and phase.name != "load":
            found.append((phase.name, phase.step))
    return found


def test_nothing_is_emptied_by_itself():
    assert places(**EVAL) == []


def test_evaluation_empties_after_every_so_many_batches():
    assert places(**EVAL, eval_empties_every=1) == [("eval", 2)] * 2 + [("eval", 4)] * 2
    assert places(**EVAL, eval_empties_every=2) == [("eval", 2), ("eval", 4)]


def test_every_second_step_before_its_backward():
    found = places(steps=5, empty_cache_steps=2)
    assert [step for _, step in found] == [1, 3, 5]
    assert {phase for phase, _ in found} <= {"forward", "loss"}


def test_every_micro_step_of_such_a_step():
    assert [step for _, step in places(steps=3, empty_cache_steps=2, gradient_accumulation_steps=3)] == [1] * 3 + [
        3
    ] * 3


def test_a_collecting_callback_empties_before_evaluations_and_one_step_late_after_them():
    emptying = Emptying(None, -1, {2, 6})
    assert [step for step in range(1, 10) if emptying.after_step(step)] == [2, 6]
    assert [step for step in range(1, 10) if emptying.before_step(step)] == [1, 4, 8]


@pytest.mark.parametrize("steps", [9, 3])
def test_a_collecting_callback_every_third_step(steps):
    emptied = [step for phase, step in places(steps=steps, collect_steps=3) if phase == "optimizer"]
    assert emptied == list(range(3, steps + 1, 3))


def test_emptying_lowers_what_an_evaluation_leaves_reserved():
    """Batches of many widths: without emptying, the blocks of each stay."""

    def reserved(every):
        run = LORA.run.changed(sequence_len=64, **{**EVAL, "eval_sequence_len": 2048}, eval_empties_every=every)
        timeline, _ = ghost_run(run, MODEL, gpu=H200, eval_widths=[700, 1100, 1500, 1900])
        return simulate(timeline, parse_settings("", (2, 11))).peak_reserved_bytes

    assert reserved(1) < reserved(None)
