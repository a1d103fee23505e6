"""What is written down again, or played as a whole, because it is alike: nothing differs from doing it each time."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_any_run import runs, small_model

from nightly import examples
from vramwise.allocator.quick.stretches import _key
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.families import all_model_types
from vramwise.ghost.loops.repeated_evals import EvalBatches
from vramwise.ghost.loops.repeated_micro_steps import MicroSteps
from vramwise.ghost.loops.sft import ghost_run

COMMON = {
    "max_examples": examples(40),
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
}
KINDS = st.sampled_from(sorted(all_model_types()))
WIDTHS = st.none() | st.lists(st.sampled_from([64, 128, 200]), min_size=1, max_size=6)


def without_cuts(timeline):
    """Where stretches may begin is a hint to who plays it."""
    return timeline and replace(timeline, cuts=(), alike={})


def timeline_of(run, model, widths):
    try:
        return ghost_run(run, model, steps=3, widths=widths)[0]
    except VramwiseError:
        return None


@settings(**COMMON)
@given(run=runs(), kind=KINDS, widths=WIDTHS)
def test_micro_steps_seen_before_are_as_if_run_again(run, kind, widths):
    model = small_model(kind)
    quick = timeline_of(run, model, widths)
    replay, MicroSteps.replay = MicroSteps.replay, lambda *_: False
    try:
        slow = timeline_of(run, model, widths)
    finally:
        MicroSteps.replay = replay
    assert without_cuts(quick) == without_cuts(slow)


@settings(**COMMON)
@given(run=runs(), kind=KINDS, widths=WIDTHS)
def test_evaluation_batches_seen_before_are_as_if_run_again(run, kind, widths):
    model, evaluated = small_model(kind), run.changed(evaluates=True, eval_batch_size=2, eval_on_start=True)
    quick = timeline_of(evaluated, model, widths)
    result, EvalBatches.result = EvalBatches.result, lambda _self, _shape, predict: predict()
    try:
        slow = timeline_of(evaluated, model, widths)
    finally:
        EvalBatches.result = result
    assert without_cuts(quick) == without_cuts(slow)


@settings(**COMMON)
@given(run=runs(), kind=KINDS, widths=WIDTHS)
def test_stretches_said_to_be_alike_are(run, kind, widths):
    timeline = timeline_of(run.changed(eval_on_start=True), small_model(kind), widths)
    if timeline is None:
        return
    ends = dict(pairwise(timeline.cuts))
    for start, source in timeline.alike.items():
        length = ends[start] - start
        if length > 1:
            assert _key(timeline.events[start : start + length], {}) == _key(
                timeline.events[source : source + length], {}
            )


@settings(**COMMON)
@given(run=runs(), kind=KINDS, widths=WIDTHS, share=st.sampled_from([None, 0.99, 0.9]))
def test_layers_played_as_a_whole_leave_the_same_figures(run, kind, widths, share):
    timeline = timeline_of(run, small_model(kind, num_hidden_layers=6, n_layer=6, hidden_size=512), widths)
    if timeline is None:
        return
    torch = run.target.torch
    allocator = parse_settings(run.allocator.settings, torch)
    needs = simulate(timeline, allocator, torch=torch)
    assert needs == simulate(timeline, allocator, torch=torch, plainly=True)
    if share is not None:
        total = int(needs.peak_reserved_bytes * share)
        tight = simulate(timeline, allocator, torch=torch, total_bytes=total)
        assert tight == simulate(timeline, allocator, torch=torch, total_bytes=total, plainly=True)
