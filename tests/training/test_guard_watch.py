"""What the guard says about a series of samples: each pattern once, none without cause. No torch."""

import random

import pytest

from vramwise.trainers.rulebook import all_rules
from vramwise.training.guard.samples import Reading, Sample
from vramwise.training.guard.watch import PATTERNS, Expected, Growth, judge
from vramwise.training.plan import GuardThresholds, PredictedMemory, PredictedPhase
from vramwise.units import GIB, MIB

CARD = Expected(device_bytes=24 * GIB, max_steps=1000)


def sample(
    step,
    phase="optimizer",
    *,
    allocated=8 * GIB,
    reserved=10 * GIB,
    peak=9.5 * GIB,
    retries=0,
    free=12 * GIB,
    width=None,
):
    reading = Reading(
        allocated_bytes=int(allocated),
        reserved_bytes=int(reserved),
        peak_allocated_bytes=int(peak),
        peak_reserved_bytes=int(reserved),
        retries=retries,
        device_free_bytes=free,
    )
    return Sample(step=step, phase=phase, reading=reading, width=width)


def quiet(steps=60):
    return [one for step in range(1, steps + 1) for one in (sample(step, "train"), sample(step))]


def rules(samples, expected=CARD):
    return [warned.rule for warned in judge(samples, expected)]


def test_a_steady_run_is_left_in_peace():
    assert rules([sample(0, "load", allocated=2 * GIB, reserved=2 * GIB, peak=2 * GIB), *quiet()]) == []


def test_every_pattern_points_at_rules_that_exist():
    known = {rule.id for rule in all_rules()}
    assert {rule for rules_ in PATTERNS.values() for rule in rules_} <= known


def test_a_jump_at_the_first_eval():
    series = [*quiet(3), sample(3, "eval", reserved=16 * GIB), sample(6, "eval", reserved=20 * GIB)]
    found = judge(series, CARD)
    jumps = [warned for warned in found if warned.rule == "reserved-jumps-at-eval"]
    assert len(jumps) == 1
    assert "from 10.0 GiB to 16.0 GiB" in jumps[0].message
    assert "of 24.0 GiB" in jumps[0].message


def test_an_eval_in_the_same_blocks_is_no_jump():
    assert rules([*quiet(3), sample(3, "eval", reserved=10.4 * GIB)]) == []


def test_an_eval_before_the_first_step_has_nothing_to_jump_from():
    assert rules([sample(0, "load", reserved=2 * GIB, peak=2 * GIB), sample(0, "eval")]) == []


def test_a_leak_is_found_long_before_it_kills():
    leak = 40 * MIB
    series = [
        sample(
            step,
            allocated=8 * GIB + step * leak,
            reserved=10 * GIB + step * leak,
            free=12 * GIB - step * leak,
            peak=9.5 * GIB + step * leak,
        )
        for step in range(1, 200)
    ]
    found = judge(series, CARD)
    assert [warned.rule for warned in found] == ["allocated-grows"]
    assert found[0].step <= 25
    # (12 GiB free + 2 GiB cached) / 40 MiB a step = about 358 steps
    assert "40.0 MiB a step" in found[0].message
    assert "full at about step 35" in found[0].message


def test_a_leak_at_every_fifth_step_is_one_too():
    series = [sample(step, allocated=8 * GIB + step // 5 * 200 * MIB) for step in range(1, 80)]
    assert rules(series) == ["allocated-grows"]


def test_a_leak_too_slow_to_fill_the_card_within_the_run_is_not_said():
    series = [sample(step, allocated=8 * GIB + step * 4096) for step in range(1, 200)]
    assert rules(series) == []


def test_one_jump_is_no_leak():
    series = [sample(step, allocated=8 * GIB + (GIB if step > 30 else 0)) for step in range(1, 100)]
    assert rules(series) == []


def test_noise_is_no_leak():
    dice = random.Random(7)
    series = [sample(step, allocated=8 * GIB + dice.randrange(200 * MIB)) for step in range(1, 5000)]
    assert rules(series) == []


def test_optimizer_state_of_the_first_step_is_no_leak():
    series = [sample(1, allocated=3 * GIB), *(sample(step) for step in range(2, 40))]
    assert rules(series) == []


def test_reserved_creep_is_told_apart_from_a_leak():
    series = [
        sample(step, reserved=10 * GIB + step * 60 * MIB, free=12 * GIB - step * 60 * MIB, peak=13 * GIB)
        for step in range(1, 60)
    ]
    found = judge(series, CARD)
    assert [warned.rule for warned in found] == ["reserved-grows"]
    assert "unpadded-sequences" in found[0].see


def test_growth_starts_anew_after_a_resume():
    growth = Growth(8)
    trends = [growth.see(step, step * MIB) for step in range(1, 9)]
    assert [trend is not None for trend in trends] == [False] * 7 + [True]
    assert growth.see(3, 20 * MIB) is None
    assert growth.see(4, 21 * MIB) is None


def test_retries():
    found = judge([*quiet(3), sample(4, "train", retries=2), sample(5, retries=3)], CARD)
    assert [warned.rule for warned in found] == ["allocator-retries"]
    assert "2 ×" in found[0].message


def test_retries_from_before_the_watch_are_not_counted():
    assert rules([sample(1, retries=5), sample(2, retries=5)]) == []


def test_fragmentation():
    found = judge([sample(1), sample(2, reserved=18 * GIB)], CARD)
    assert [warned.rule for warned in found] == ["memory-fragmented"]
    assert "8.5 GiB (47 %)" in found[0].message


def test_fragmentation_of_a_tiny_model_does_not_matter():
    tiny = {"allocated": 10 * MIB, "peak": 20 * MIB, "reserved": 60 * MIB}
    assert rules([sample(1, **tiny), sample(2, **tiny), sample(3, **tiny)]) == []


def test_a_batch_longer_than_declared():
    expected = Expected(device_bytes=24 * GIB, max_width=2048)
    found = judge(
        [sample(1, "train", width=2048), sample(2, "train", width=3000), sample(3, "train", width=4000)], expected
    )
    assert [(warned.rule, warned.step) for warned in found] == [("batch-longer-than-declared", 2)]


@pytest.mark.parametrize(("peak", "said"), [(9.5, False), (12.0, True)])
def test_above_prediction_by_phase(peak, said):
    predicted = PredictedMemory(
        peak_allocated_bytes=20 * GIB,
        peak_reserved_bytes=22 * GIB,
        outside_bytes=0,
        limit_bytes=None,
        expected_error=0.03,
        phases=(
            PredictedPhase(step=1, phase="backward", peak_allocated_bytes=int(9.4 * GIB), peak_reserved_bytes=10 * GIB),
            PredictedPhase(step=1, phase="eval", peak_allocated_bytes=20 * GIB, peak_reserved_bytes=22 * GIB),
        ),
    )
    expected = Expected(device_bytes=24 * GIB, predicted=predicted, peaks_per_phase=True)
    assert rules([sample(1, "train", peak=peak * GIB)], expected) == ["above-prediction"] * said


@pytest.mark.parametrize(("step", "said"), [(0, True), (40, False)])
def test_what_a_checkpoint_brings_along_is_not_above_the_prediction_of_loading(step, said):
    load = PredictedPhase(step=0, phase="load", peak_allocated_bytes=2 * GIB, peak_reserved_bytes=2 * GIB)
    predicted = PredictedMemory(
        peak_allocated_bytes=20 * GIB, peak_reserved_bytes=22 * GIB, outside_bytes=0, limit_bytes=None, phases=(load,)
    )
    expected = Expected(device_bytes=24 * GIB, predicted=predicted, peaks_per_phase=True)
    assert rules([sample(step, "load", peak=4 * GIB)], expected) == ["above-prediction"] * said


def test_peaks_of_the_whole_run_are_compared_with_the_whole_prediction():
    phase = PredictedPhase(step=1, phase="optimizer", peak_allocated_bytes=GIB, peak_reserved_bytes=GIB)
    predicted = PredictedMemory(
        peak_allocated_bytes=10 * GIB, peak_reserved_bytes=11 * GIB, outside_bytes=0, limit_bytes=None, phases=(phase,)
    )
    assert rules([sample(1)], Expected(device_bytes=24 * GIB, predicted=predicted)) == []


def test_thresholds_are_the_plans():
    lenient = Expected(device_bytes=24 * GIB, thresholds=GuardThresholds(fragmentation=0.6))
    assert rules([sample(1), sample(2, reserved=18 * GIB)], lenient) == []
