from vramwise.allocator.driver import REGION, AscendingPlaces, RecordedPlaces, TopDownPlaces
from vramwise.units import MIB


def test_regions_go_down_and_gaps_are_filled_from_below():
    places = TopDownPlaces()
    first = places.take(22 * MIB)
    second = places.take(22 * MIB)
    assert second == first - REGION
    # 10 MiB are left in each region: the lower one is used first
    assert places.take(2 * MIB) == second + 22 * MIB
    assert places.take(8 * MIB) == second + 24 * MIB
    assert places.take(2 * MIB) == first + 22 * MIB
    assert places.take(33 * MIB) == second - 2 * REGION


def test_a_freed_segment_is_a_gap_again_joined_with_its_neighbours():
    places = TopDownPlaces()
    low = places.take(20 * MIB)
    high = places.take(12 * MIB)
    assert high == low + 20 * MIB
    places.give_back(high, 12 * MIB)
    places.give_back(low, 20 * MIB)
    assert places.take(32 * MIB) == low


def test_by_age_means_ascending_and_never_twice():
    places = AscendingPlaces()
    first = places.take(2 * MIB)
    places.give_back(first, 2 * MIB)
    assert places.take(2 * MIB) > first


def test_recorded_places_are_used_in_order_if_the_size_agrees():
    places = RecordedPlaces(by_age=False)
    places.announce(4096, 2 * MIB)
    assert places.take(2 * MIB) == 4096
    places.announce(8192, 2 * MIB)
    assert places.take(20 * MIB) != 8192
    places.forget()
    assert places.take(2 * MIB) != 8192


def test_recorded_places_by_age_ascend_and_remember_what_is_where():
    places = RecordedPlaces(by_age=True)
    places.announce(8192, 2 * MIB)
    places.announce(4096, 2 * MIB)
    first, second = places.take(2 * MIB), places.take(2 * MIB)
    assert first < second
    assert places.here == {8192: first, 4096: second}
