"""Whatever is asked of it, the allocator's books must balance."""

from itertools import pairwise

from allocators import make
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly import examples
from vramwise.allocator.blocks import ADDRESS_BITS, FREE, UNMAPPED, USED, WAITING, AllocationError
from vramwise.units import MIB

CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:40",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.5",
    "expandable_segments:True,roundup_power2_divisions:[1:2,>:16]",
    "large_segment_size_mb:32,max_split_size_mb:64",
)
SIZES = st.one_of(
    st.integers(1, 4096), st.integers(1, 2 * MIB), st.integers(1, 90 * MIB), st.sampled_from([5, 20, 21, 64])
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES, st.integers(0, 1)),
        st.tuples(st.just("free"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("hold"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("complete"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
        st.tuples(st.just("mode"), st.just(0), st.integers(0, 1)),
    ),
    max_size=60,
)


def check_books(allocator, live):
    reserved = allocated = 0
    free = {}
    for segment in allocator.segments:
        at = segment.address
        previous = segment
        for block in segment.blocks():
            assert block.address == at, "blocks tile their segment"
            assert block.prev is previous
            assert block.size > 0
            # neighbours that could be one block are one
            assert not (block.state == previous.state and block.state in (FREE, UNMAPPED))
            at += block.size
            previous = block
            if block.state != UNMAPPED:
                reserved += block.size
            if block.state == USED:
                allocated += block.size
            if block.state == FREE:
                free[id(block)] = block
            if block.state == UNMAPPED:
                assert (block.address - segment.address) % segment.granule == 0
                assert block in segment.shelf.unmapped
        assert at == segment.address + segment.size
        assert segment.prev is previous
    assert reserved == allocator.reserved_bytes
    assert allocated == allocator.allocated_bytes == sum(block.size for block in live)
    shelved = [
        block for pool in (allocator.small, allocator.large) for s in pool.shelves.values() for block in s.blocks
    ]
    assert {id(block) for block in shelved} == set(free)
    for pool in (allocator.small, allocator.large):
        for shelf in pool.shelves.values():
            assert shelf.keys == sorted(block.size << ADDRESS_BITS | block.address for block in shelf.blocks)
            assert [block.address for block in shelf.unmapped] == sorted(block.address for block in shelf.unmapped)


def play(allocator, steps):
    live, held = [], []
    other_mode = None
    for action, value, stream in steps:
        if action == "malloc":
            try:
                live.append(allocator.malloc(value, stream))
            except AllocationError:
                assert allocator.limit_bytes < 1 << 60
        elif action == "free" and live:
            allocator.free(live.pop(value % len(live)))
        elif action == "hold" and live:
            held.append(live.pop(value % len(live)))
            allocator.hold(held[-1])
        elif action == "complete" and held:
            allocator.complete(held.pop(value % len(held)))
        elif action == "empty":
            allocator.empty_cache()
        elif action == "mode":
            other_mode = "expandable_segments:True" if stream else ""
            allocator.change_settings(make(other_mode).settings)
        check_books(allocator, live)
    return live


@settings(max_examples=examples(120), deadline=None)
@given(
    conf=st.sampled_from(CONFS),
    torch=st.sampled_from([(2, 11), (2, 13)]),
    limit=st.sampled_from([None, 150 * MIB, 400 * MIB]),
    steps=STEPS,
)
def test_books_balance_after_every_step(conf, torch, limit, steps):
    allocator = make(conf, torch, limit_bytes=limit)
    live = play(allocator, steps)
    for block in live:
        allocator.free(block)
    check_books(allocator, [])
    allocator.empty_cache()
    # everything is free: whole segments and whole granules are given back, and every granule is whole
    assert allocator.reserved_bytes == 0
    assert not allocator.segments


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS, torch=st.sampled_from([(2, 11), (2, 13)]))
def test_the_same_steps_give_the_same_memory(steps, torch):
    peaks = set()
    for _ in range(2):
        allocator = make("", torch)
        play(allocator, steps)
        peaks.add((allocator.peak_reserved_bytes, allocator.peak_allocated_bytes, allocator.reserved_bytes))
    assert len(peaks) == 1


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, conf=st.sampled_from(["", "expandable_segments:True"]))
def test_live_blocks_never_overlap(steps, conf):
    allocator = make(conf)
    live = play(allocator, [step for step in steps if step[0] != "mode"])
    spans = sorted((block.address, block.address + block.size) for block in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(block.state in (USED, WAITING) for block in live)
