"""Computes the block size for a request and the segment size for a block, by settings and torch version."""

from __future__ import annotations

from typing import Final

from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.units import MIB

MIN_BLOCK: Final = 512
SMALL: Final = MIB  # requests up to here come from the small pool
SMALL_SEGMENT: Final = 2 * MIB
MIN_LARGE_SEGMENT_REQUEST: Final = 10 * MIB  # from this size on, a request gets a segment of its own size
SEGMENT_STEP: Final = 2 * MIB


def round_request(request: int, settings: AllocatorSettings, torch: TorchVersion) -> int:
    """Return the block size for a request: a multiple of 512, or of a division of a power of two if those are set."""
    if request < MIN_BLOCK:
        return MIN_BLOCK
    top = request.bit_length() - 1
    divisions = settings.roundup_divisions[min(max(top - 20, 0), 15)]
    # Up to 2.3, a single division also applied and left the size unchanged.
    if divisions == 1 and torch < (2, 4) and request > MIN_BLOCK:
        return request
    if divisions > 1 and request > MIN_BLOCK * divisions:
        step = (1 << top) // divisions
        return -(-request // step) * step
    return -(-request // MIN_BLOCK) * MIN_BLOCK


def segment_size(block_bytes: int, settings: AllocatorSettings) -> int:
    """Return the size of a new plain segment for a block of this size."""
    if block_bytes <= SMALL:
        return SMALL_SEGMENT
    if block_bytes < MIN_LARGE_SEGMENT_REQUEST:
        return settings.large_segment_bytes
    return -(-block_bytes // SEGMENT_STEP) * SEGMENT_STEP
