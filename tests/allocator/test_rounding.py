import pytest

from vramwise.allocator.rounding import round_request, segment_size
from vramwise.allocator.settings import parse_settings
from vramwise.units import MIB


@pytest.mark.parametrize(
    ("conf", "torch", "request_bytes", "block_bytes"),
    [
        ("", (2, 11), 1, 512),
        ("", (2, 11), 512, 512),
        ("", (2, 11), 513, 1024),
        ("", (2, 11), 8_519_680, 8_519_680),
        # sixteenths of the power of two below
        ("roundup_power2_divisions:16", (2, 11), 1_000_000, 1_015_808),
        ("roundup_power2_divisions:16", (2, 11), 1 << 20, 1 << 20),
        # not above 512 bytes a division: ordinary rounding
        ("roundup_power2_divisions:16", (2, 11), 8192, 8192),
        ("roundup_power2_divisions:16", (2, 11), 8100, 8192),
        ("roundup_power2_divisions:4", (2, 11), 5000, 5120),
        # one slot for each power of two of MiB, the ends for all beyond
        ("roundup_power2_divisions:[1:8,2:0,4:2]", (2, 11), 3 * MIB - 1, 3 * MIB),
        ("roundup_power2_divisions:[1:8,2:0,4:2]", (2, 11), 4 * MIB + 1, 6 * MIB),
        ("roundup_power2_divisions:[1:8,2:0,4:2]", (2, 11), 70_000, 73_728),
        ("roundup_power2_divisions:[1:2,>:4]", (2, 11), (33 << 30) + 1, 40 << 30),
        # a single division: nothing to round to, and before 2.4 not even to 512
        ("roundup_power2_divisions:1", (2, 4), 5001, 5120),
        ("roundup_power2_divisions:1", (2, 3), 5001, 5001),
        ("roundup_power2_divisions:1", (2, 3), 100, 512),
    ],
)
def test_block_sizes(conf, torch, request_bytes, block_bytes):
    assert round_request(request_bytes, parse_settings(conf, torch), torch) == block_bytes


@pytest.mark.parametrize(
    ("block_mib", "segment_mib"), [(0.5, 2), (1, 2), (1.5, 20), (9.5, 20), (10, 10), (10.5, 12), (131, 132)]
)
def test_segment_sizes(block_mib, segment_mib):
    assert segment_size(int(block_mib * MIB), parse_settings("", (2, 11))) == segment_mib * MIB


def test_large_segment_size_setting():
    settings = parse_settings("large_segment_size_mb:64", (2, 11))
    assert segment_size(2 * MIB, settings) == 64 * MIB
    assert segment_size(12 * MIB, settings) == 12 * MIB
