from itertools import pairwise

import pytest
from allocators import EXPANDABLE, layout, make

from vramwise.allocator.blocks import AllocationError
from vramwise.errors import VramwiseError
from vramwise.units import GIB, MIB


def mib(size):
    return int(size * MIB)


def test_a_request_of_nothing_allocates_nothing():
    allocator = make()
    assert allocator.malloc(0) is None
    assert allocator.reserved_bytes == 0


@pytest.mark.parametrize("torch", [(2, 11), (2, 13)])
@pytest.mark.parametrize("conf", ["", EXPANDABLE])
def test_what_no_card_could_hold_is_counted_all_the_same(conf, torch):
    allocator = make(conf, torch)
    blocks = [allocator.malloc(size) for size in (1 << 47, 5 << 40, 1 << 52, 1 << 50, 3 << 47, *[400 * GIB] * 300)]
    assert allocator.allocated_bytes == sum(block.size for block in blocks)
    places = sorted((block.address, block.size) for block in blocks)
    assert places[0][0] >= 0
    assert all(start + size <= following for (start, size), (following, _) in pairwise(places))
    for block in blocks[::2] + blocks[1::2]:
        allocator.free(block)
    assert allocator.allocated_bytes == 0
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


@pytest.mark.parametrize("conf", ["", EXPANDABLE])
def test_more_than_can_be_counted_is_out_of_memory(conf):
    allocator = make(conf)
    with pytest.raises(AllocationError):
        allocator.malloc(1 << 61)


def test_small_requests_share_a_segment_and_large_ones_another():
    allocator = make()
    allocator.malloc(1)
    allocator.malloc(mib(1))
    assert allocator.reserved_bytes == mib(2)
    allocator.malloc(mib(1.5))
    allocator.malloc(mib(9))
    assert allocator.reserved_bytes == mib(22)
    allocator.malloc(mib(11))
    assert allocator.reserved_bytes == mib(34)
    assert allocator.allocated_bytes == 512 + mib(1 + 1.5 + 9 + 12)


def test_a_rest_of_up_to_1_mib_is_not_split_off():
    allocator = make()
    block = allocator.malloc(mib(11))
    assert block.size == mib(12)
    allocator.free(block)
    assert allocator.malloc(mib(10.5)).size == mib(10.5)
    assert layout(allocator) == [[("used", 10.5), ("free", 1.5)]]


def test_expandable_mode_splits_off_anything():
    allocator = make(EXPANDABLE)
    allocator.malloc(mib(19.5))
    assert layout(allocator) == [[("used", 19.5), ("free", 0.5), ("unmapped", ...)]]


def test_the_smallest_block_that_fits_is_taken():
    allocator = make()
    blocks = [allocator.malloc(mib(size)) for size in (40, 20, 30)]
    place = blocks[2].address
    for block in blocks:
        allocator.free(block)
    assert allocator.malloc(mib(26)).address == place
    assert allocator.reserved_bytes == mib(90)


def test_between_equal_blocks_the_lower_address_wins_up_to_2_12():
    allocator = make(torch=(2, 12))
    older, younger = allocator.malloc(mib(20)), allocator.malloc(mib(20))
    assert younger.address < older.address
    allocator.free(older)
    allocator.free(younger)
    assert allocator.malloc(mib(20)) is younger


def test_between_equal_blocks_the_older_segment_wins_from_2_13_on():
    allocator = make(torch=(2, 13))
    older, younger = allocator.malloc(mib(20)), allocator.malloc(mib(20))
    allocator.free(younger)
    allocator.free(older)
    assert allocator.malloc(mib(20)) is older


def test_freed_neighbours_merge():
    allocator = make()
    blocks = [allocator.malloc(mib(4)) for _ in range(5)]
    for at in (0, 2, 1, 4, 3):
        allocator.free(blocks[at])
    assert layout(allocator) == [[("free", 20)]]
    assert allocator.malloc(mib(20)).size == mib(20)


def test_empty_cache_gives_back_whole_segments_only():
    allocator = make()
    kept, freed = allocator.malloc(mib(4)), allocator.malloc(mib(4))
    whole = allocator.malloc(mib(50))
    allocator.free(freed)
    allocator.free(whole)
    allocator.empty_cache()
    assert layout(allocator) == [[("used", 4), ("free", 16)]]
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    assert layout(allocator) == []


class TestExpandable:
    def test_memory_is_mapped_in_granules(self):
        allocator = make(EXPANDABLE)
        allocator.malloc(1)
        assert allocator.reserved_bytes == mib(2)
        allocator.malloc(mib(21))
        assert allocator.reserved_bytes == mib(42)
        allocator.malloc(mib(30))
        assert allocator.reserved_bytes == mib(62)
        assert layout(allocator)[1] == [("used", 21), ("used", 30), ("free", 9), ("unmapped", ...)]

    def test_large_segment_size_is_the_granule_of_the_large_pool(self):
        allocator = make(EXPANDABLE + ",large_segment_size_mb:64")
        allocator.malloc(mib(2))
        assert allocator.reserved_bytes == mib(64)

    def test_the_tail_that_can_still_grow_is_used_last(self):
        allocator = make(EXPANDABLE)
        hole, _, tail = allocator.malloc(mib(30)), allocator.malloc(mib(4)), allocator.malloc(mib(6))
        place = hole.address
        allocator.free(hole)
        allocator.free(tail)
        # 6 MiB at the tail would be the better fit for 5 MiB, were it not for its room to grow
        assert allocator.malloc(mib(5)).address == place

    def test_growth_fills_the_lowest_gap_that_has_room(self):
        allocator = make(EXPANDABLE)
        first, _, third, _ = (allocator.malloc(mib(20)) for _ in range(4))
        allocator.free(first)
        allocator.free(third)
        allocator.empty_cache()
        assert layout(allocator) == [
            [("unmapped", 20), ("used", 20), ("unmapped", 20), ("used", 20), ("unmapped", ...)]
        ]
        assert allocator.malloc(mib(18)).address == first.address
        assert allocator.malloc(mib(25)).address > third.address

    def test_only_whole_granules_inside_a_free_block_are_unmapped(self):
        allocator = make(EXPANDABLE)
        before, middle, after = allocator.malloc(mib(15)), allocator.malloc(mib(50)), allocator.malloc(mib(15))
        allocator.free(middle)
        allocator.empty_cache()
        assert layout(allocator) == [
            [("used", 15), ("free", 5), ("unmapped", 40), ("free", 5), ("used", 15), ("unmapped", ...)]
        ]
        assert allocator.reserved_bytes == mib(40)
        # a request takes free, unmapped and free memory together
        assert allocator.malloc(mib(50)).address == before.address + mib(15)
        assert allocator.reserved_bytes == mib(80)
        assert after.prev.size == mib(50)

    def test_a_segment_without_memory_is_gone(self):
        allocator = make(EXPANDABLE)
        allocator.free(allocator.malloc(mib(30)))
        allocator.empty_cache()
        assert allocator.reserved_bytes == 0
        assert layout(allocator) == []

    def test_address_space_is_an_eighth_more_than_the_card(self):
        allocator = make(EXPANDABLE, total_bytes=mib(800))
        allocator.malloc(mib(2))
        (segment,) = allocator.segments
        assert segment.size == mib(900)

    def test_a_card_without_memory_left_maps_nothing(self):
        allocator = make(EXPANDABLE, total_bytes=mib(100), outside_bytes=mib(30))
        allocator.malloc(mib(55))
        with pytest.raises(AllocationError):
            allocator.malloc(mib(20))
        assert allocator.reserved_bytes == mib(60)

    def test_plain_mode_passes_over_expandable_blocks(self):
        allocator = make(EXPANDABLE)
        expandable = allocator.malloc(mib(30))
        place = expandable.address
        allocator.free(expandable)
        allocator.change_settings(make().settings)
        plain = allocator.malloc(mib(12))
        assert plain.segment.granule == 0
        assert allocator.reserved_bytes == mib(40 + 12)
        allocator.free(plain)
        allocator.change_settings(make(EXPANDABLE).settings)
        assert allocator.malloc(mib(12)) is plain
        assert allocator.malloc(mib(13)).address == place


class TestLimits:
    def test_the_cache_is_given_back_before_memory_runs_out(self):
        allocator = make(limit_bytes=mib(100))
        allocator.free(allocator.malloc(mib(60)))
        allocator.malloc(mib(80))
        assert allocator.retries == 1
        assert allocator.reserved_bytes == mib(80)

    def test_out_of_memory(self):
        allocator = make(limit_bytes=mib(100))
        allocator.malloc(mib(60))
        with pytest.raises(AllocationError, match="out of memory"):
            allocator.malloc(mib(41))
        assert allocator.retries == 1
        assert allocator.reserved_bytes == mib(60)

    def test_a_fraction_in_the_settings_is_a_limit(self):
        allocator = make("per_process_memory_fraction:0.5", total_bytes=GIB)
        allocator.malloc(mib(500))
        with pytest.raises(AllocationError):
            allocator.malloc(mib(20))

    def test_the_card_is_a_limit_less_what_others_hold(self):
        allocator = make(total_bytes=mib(100), outside_bytes=mib(50))
        allocator.malloc(mib(50))
        with pytest.raises(AllocationError):
            allocator.malloc(1)

    def test_the_limit_is_compared_with_a_whole_segment_but_granules_are_mapped(self):
        allocator = make(EXPANDABLE, limit_bytes=mib(110))
        allocator.malloc(mib(95))
        # 10 MiB more are within the limit; the granule that holds them is not, and torch does not look
        allocator.malloc(mib(10))
        assert allocator.reserved_bytes == mib(120)


class TestOversize:
    def test_a_large_free_block_is_kept_for_large_requests(self):
        allocator = make("max_split_size_mb:50")
        large = allocator.malloc(mib(60))
        allocator.free(large)
        assert allocator.malloc(mib(30)) is not large
        assert allocator.reserved_bytes == mib(90)

    def test_a_large_request_takes_a_block_of_up_to_20_mib_more_whole(self):
        allocator = make("max_split_size_mb:50")
        large = allocator.malloc(mib(78))
        allocator.free(large)
        assert allocator.malloc(mib(58)) is not large
        assert allocator.malloc(mib(60)) is large
        assert large.size == mib(78)

    def test_how_much_more_can_be_set(self):
        allocator = make("max_split_size_mb:50,max_non_split_rounding_mb:40")
        large = allocator.malloc(mib(90))
        allocator.free(large)
        assert allocator.malloc(mib(52)) is large

    def test_after_a_rejection_no_other_block_is_tried(self):
        allocator = make("max_split_size_mb:50")
        held = [allocator.malloc(mib(40)), allocator.malloc(mib(60))]
        for block in held:
            allocator.free(block)
        assert allocator.malloc(mib(45)) not in held

    def test_one_block_that_is_enough_is_given_back_before_all_are(self):
        allocator = make("max_split_size_mb:50", limit_bytes=mib(200))
        for block in [allocator.malloc(mib(size)) for size in (54, 84, 60)]:
            allocator.free(block)
        # 54 MiB is the smallest that is at least the split limit
        allocator.malloc(mib(30))
        assert allocator.retries == 0
        assert sorted(segment.size / MIB for segment in allocator.segments) == [30, 60, 84]

    def test_else_the_largest_are_given_back_until_they_are_enough(self):
        allocator = make("max_split_size_mb:50", limit_bytes=mib(200))
        for block in [allocator.malloc(mib(size)) for size in (54, 60, 66)]:
            allocator.free(block)
        allocator.malloc(mib(100))
        assert allocator.retries == 0
        assert sorted(segment.size / MIB for segment in allocator.segments) == [54, 100]

    def test_expandable_blocks_are_passed_over_from_2_5_on(self):
        conf = EXPANDABLE + ",max_split_size_mb:50"
        allocator = make(conf, torch=(2, 5), limit_bytes=mib(100))
        allocator.free(allocator.malloc(mib(60)))
        allocator.malloc(mib(95))
        assert allocator.retries == 1

    def test_before_2_5_torch_stops_there(self):
        conf = EXPANDABLE + ",max_split_size_mb:50"
        allocator = make(conf, torch=(2, 4), limit_bytes=mib(100))
        allocator.free(allocator.malloc(mib(60)))
        with pytest.raises(AllocationError, match="internal error"):
            allocator.malloc(mib(95))


class TestCollection:
    def test_segments_free_for_longer_than_average_are_given_back(self):
        allocator = make("garbage_collection_threshold:0.5", limit_bytes=mib(100))
        old = allocator.malloc(mib(20))
        allocator.free(old)
        blocks = [allocator.malloc(mib(22)) for _ in range(2)]
        allocator.free(blocks[0])
        allocator.malloc(mib(24))
        assert old.segment not in allocator.segments
        assert blocks[0].segment in allocator.segments
        assert allocator.retries == 0

    def test_nothing_happens_below_the_threshold_or_without_a_limit(self):
        for limit in (mib(1000), None):
            allocator = make("garbage_collection_threshold:0.5", limit_bytes=limit)
            allocator.free(allocator.malloc(mib(20)))
            allocator.malloc(mib(22))
            assert allocator.reserved_bytes == mib(42)


class TestStreams:
    def test_streams_do_not_share_free_blocks(self):
        allocator = make()
        allocator.free(allocator.malloc(mib(20), stream=0))
        allocator.malloc(mib(20), stream=7)
        assert allocator.reserved_bytes == mib(40)

    def test_a_block_used_elsewhere_is_free_only_when_that_stream_is_done(self):
        allocator = make()
        block = allocator.malloc(mib(20))
        allocator.hold(block)
        assert allocator.allocated_bytes == 0
        assert layout(allocator) == [[("waiting", 20)]]
        assert allocator.malloc(mib(20)) is not block
        allocator.complete(block)
        assert allocator.malloc(mib(20)) is block

    def test_a_waiting_neighbour_is_not_merged(self):
        allocator = make()
        waiting, freed = allocator.malloc(mib(4)), allocator.malloc(mib(4))
        allocator.hold(waiting)
        allocator.free(freed)
        assert layout(allocator) == [[("waiting", 4), ("free", 16)]]

    def test_giving_memory_back_waits_for_all_streams(self):
        allocator = make()
        block = allocator.malloc(mib(20))
        allocator.hold(block)
        allocator.empty_cache()
        assert allocator.reserved_bytes == 0

    def test_a_held_block_is_completed_once(self):
        allocator = make()
        block, _ = allocator.malloc(mib(4)), allocator.malloc(mib(4))
        allocator.hold(block)
        assert layout(allocator) == [[("waiting", 4), ("used", 4), ("free", 12)]]
        allocator.empty_cache()
        allocator.complete(block)
        assert layout(allocator) == [[("free", 4), ("used", 4), ("free", 12)]]


def test_segments_are_reported_to_who_watches():
    seen = []
    allocator = make(watch=lambda *event: seen.append(event))
    block = allocator.malloc(mib(20), stream=3)
    allocator.free(block)
    allocator.empty_cache()
    assert seen == [("segment_alloc", block.address, mib(20), 3), ("segment_free", block.address, mib(20), 3)]


def test_only_the_native_backend_is_simulated():
    with pytest.raises(VramwiseError, match="cudaMallocAsync"):
        make("backend:cudaMallocAsync")
