"""The sampled run: exact where it matters (peaks, phases, what is alive), small whatever the run's length."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly import examples
from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.profile import HOLE, Allocation, Run, choose_moments, profile_timeline
from vramwise.allocator.run import play_timeline, simulate
from vramwise.allocator.settings import AllocatorSettings
from vramwise.timeline import Action, Event, Phase, Tag, Timeline
from vramwise.units import MIB

DEFAULT = AllocatorSettings()
EXPANDABLE = AllocatorSettings(expandable_segments=True)
WEIGHTS, GRADIENTS, LOGITS = Tag("weights", "embedding"), Tag("gradients", "embedding"), Tag("logits", "logits in fp32")
TAGS = (WEIGHTS, GRADIENTS, LOGITS)


def alloc(tensor, size_bytes, tag=0):
    return Event(Action.ALLOC, tensor, size_bytes, 0, tag)


def free(tensor):
    return Event(Action.FREE, tensor, 0, 0, 0)


def phase(number):
    return Event(Action.PHASE, 0, 0, 0, number)


EMPTY_CACHE = Event(Action.EMPTY_CACHE, 0, 0, 0, 0)
LOAD, FORWARD, BACKWARD = Phase("load", 0), Phase("forward", 1), Phase("backward", 1)


def timeline(*events):
    return Timeline(events=events, tags=TAGS, phases=(LOAD, FORWARD, BACKWARD))


STEP = timeline(
    phase(0),
    alloc(0, 30 * MIB),
    phase(1),
    alloc(1, 50 * MIB, 2),
    alloc(2, 3 * MIB, 2),
    phase(2),
    free(1),
    alloc(3, 30 * MIB, 1),
    free(2),
)


@st.composite
def runs(draw):
    """A random run with phases, frees and emptied caches."""
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    events, live = [], []
    for tensor in range(draw(st.integers(0, 400))):
        dice = chance.random()
        if dice < 0.03:
            events.append(phase(chance.randrange(3)))
        elif dice < 0.05:
            events.append(EMPTY_CACHE)
        elif dice < 0.45 and live:
            events.append(free(live.pop(chance.randrange(len(live)))))
        else:
            events.append(alloc(tensor, int(2 ** chance.uniform(0, 27)) - 1, chance.randrange(3)))
            live.append(tensor)
    return timeline(*events)


def test_a_small_run_is_kept_whole():
    profile = profile_timeline(STEP, DEFAULT)
    assert [moment.event for moment in profile.moments] == list(range(9))
    assert profile.categories == ("weights", "gradients", "logits")
    assert [tuple(size // MIB for size in moment.category_bytes) for moment in profile.moments] == [
        (0, 0, 0),
        (30, 0, 0),
        (30, 0, 0),
        (30, 0, 50),
        (30, 0, 53),
        (30, 0, 53),
        (30, 0, 3),
        (30, 30, 3),
        (30, 30, 0),
    ]
    assert [mark.phase for mark in profile.marks] == [LOAD, FORWARD, BACKWARD]
    assert profile.phase_at(4) == FORWARD
    assert profile.moments[4].allocations == (Allocation(LOGITS, 3 * MIB, 1),)


def test_the_focus_is_the_peak_with_its_segments_and_holdings():
    profile = profile_timeline(STEP, DEFAULT)
    peak = profile.moments[profile.peak]
    assert profile.focus == profile.peak
    assert (peak.event, peak.reserved_bytes, peak.allocated_bytes) == (4, 100 * MIB, 83 * MIB)
    assert profile.holdings == [Allocation(LOGITS, 53 * MIB, 2), Allocation(WEIGHTS, 30 * MIB, 1)]
    assert [bar.runs for bar in profile.segments] == [
        [Run("weights", 30 * MIB, "embedding", 1)],
        [Run("logits", 50 * MIB, "logits in fp32", 1)],
        [Run("logits", 3 * MIB, "logits in fp32", 1), Run(HOLE, 17 * MIB, "", 1)],
    ]
    assert profile.segments[2].free_bytes == profile.segments[2].largest_hole_bytes == 17 * MIB


def test_neighbours_of_one_category_are_one_run_named_after_the_largest():
    tags = (Tag("weights", "small"), Tag("weights", "large"))
    events = [alloc(0, 2 * MIB, 0), alloc(1, 4 * MIB, 1), alloc(2, 2 * MIB, 0)]
    profile = profile_timeline(Timeline(events=events, tags=tags, phases=()), DEFAULT)
    assert profile.segments[0].runs == [Run("weights", 8 * MIB, "large", 3), Run(HOLE, 12 * MIB, "", 1)]


def test_unmapped_memory_parts_the_bars_of_an_expandable_segment():
    """The middle of three is given back before another pool asks for more than was reserved before."""
    events = [*(alloc(n, 20 * MIB) for n in range(3)), free(1), EMPTY_CACHE, *(alloc(n, MIB) for n in range(4, 24))]
    profile = profile_timeline(timeline(*events, alloc(30, 60 * MIB, 1)), EXPANDABLE)
    large = [bar for bar in profile.segments if not bar.small_pool]
    assert [bar.size_bytes // MIB for bar in large] == [20, 80]
    assert all(bar.expandable for bar in profile.segments)


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.sampled_from([DEFAULT, EXPANDABLE]), st.integers(1, 50))
def test_no_peak_is_lost(run, conf, stretches):
    """However few moments are kept: the report's peaks, its breakdown and the marks of each phase are among them."""
    report = simulate(run, conf)
    profile = profile_timeline(run, conf, stretches=stretches)
    if not profile.moments:
        assert not run.events
        return
    peak = profile.moments[profile.peak]
    assert peak.reserved_bytes == report.peak_reserved_bytes
    assert max(moment.allocated_bytes for moment in profile.moments) == report.peak_allocated_bytes
    held = dict(zip(profile.categories, peak.category_bytes, strict=True))
    assert held == {name: report.breakdown_bytes.get(name, 0) for name in held}
    for mark in report.phases:
        within = [at for at in profile.moments if profile.phase_at(at.event) == Phase(mark.phase, mark.step)]
        if len(profile.marks) <= stretches and within:
            assert max(moment.allocated_bytes for moment in within) == mark.peak_allocated_bytes
            assert max(moment.reserved_bytes for moment in within) == mark.peak_reserved_bytes


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.sampled_from([DEFAULT, EXPANDABLE]))
def test_every_moment_is_the_allocators_state(run, conf):
    profile = profile_timeline(run, conf, stretches=20)
    for moment in profile.moments:
        allocator = CachingAllocator(conf)
        play_timeline(run, allocator, until=moment.event + 1)
        assert (moment.allocated_bytes, moment.reserved_bytes) == (allocator.allocated_bytes, allocator.reserved_bytes)
    if profile.moments:
        focus = profile.moments[profile.focus]
        assert sum(bar.size_bytes for bar in profile.segments) == focus.reserved_bytes
        assert sum(bar.size_bytes - bar.free_bytes for bar in profile.segments) == focus.allocated_bytes
        assert sum(held.size_bytes for held in profile.holdings) == focus.allocated_bytes


@pytest.mark.parametrize("phases", [1, 50, 2000])
def test_the_number_of_moments_is_bounded(phases):
    count = 20_000
    marks = [Event(Action.PHASE, 0, 0, 0, number) for number in range(phases)]
    events = [event for number in range(count) for event in (alloc(number, (1 + number % 40) * MIB), free(number))]
    for number, mark in enumerate(marks):
        events.insert(number * (len(events) // phases), mark)
    run = Timeline(events=events, tags=TAGS, phases=[Phase("p", number) for number in range(phases)])
    profile = profile_timeline(run, DEFAULT, stretches=200)
    assert len(profile.moments) <= 3 * (200 + min(phases, 200)) + 2


def test_what_cannot_be_seen_shares_a_moment():
    """A thousand scalars beside one large tensor: the tensor's events stay apart, the scalars' do not."""
    scalars = [event for number in range(1, 500) for event in (alloc(number, 4), free(number))]
    run = timeline(*scalars, alloc(1000, 500 * MIB), free(1000), *scalars)
    kept = {moment.event for moment in profile_timeline(run, DEFAULT, stretches=40).moments}
    assert {len(scalars), len(scalars) + 1} <= kept
    assert len(kept) < 130


def test_out_of_memory_ends_the_run_and_is_the_focus():
    run = timeline(phase(0), alloc(0, 30 * MIB), phase(1), alloc(1, 50 * MIB, 2), free(1), alloc(2, 90 * MIB, 2))
    limit = {"limit_bytes": 100 * MIB}
    report = simulate(run, DEFAULT, **limit)
    profile = profile_timeline(replace(run, events=(*run.events, free(0))), DEFAULT, **limit)
    assert report.out_of_memory is not None
    assert profile.failed == Allocation(LOGITS, 90 * MIB, 1)
    assert profile.event_count == 6
    assert profile.bound_bytes == 100 * MIB
    last = profile.moments[-1]
    assert profile.focus == len(profile.moments) - 1
    # the failed request gave the cached 50 MiB back before it gave up
    assert (last.event, last.reserved_bytes, last.allocated_bytes) == (5, 30 * MIB, 30 * MIB)
    assert [bar.size_bytes for bar in profile.segments] == [30 * MIB]
    assert profile.moments[profile.peak].reserved_bytes == report.peak_reserved_bytes == 80 * MIB


def test_the_bound_is_the_lower_of_card_and_limit():
    assert profile_timeline(STEP, DEFAULT).bound_bytes is None
    card = {"total_bytes": 1000 * MIB, "outside_bytes": 100 * MIB}
    assert profile_timeline(STEP, DEFAULT, **card).bound_bytes == 900 * MIB
    assert profile_timeline(STEP, DEFAULT, **card, limit_bytes=500 * MIB).bound_bytes == 500 * MIB


def test_nothing_gives_an_empty_profile():
    profile = profile_timeline(timeline(), DEFAULT)
    assert (profile.moments, profile.segments, profile.holdings, profile.event_count) == ([], [], [], 0)
    assert choose_moments([], [], [], 10) == []
