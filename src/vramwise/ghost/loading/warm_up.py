"""transformers' warm-up of the allocator: one request of the model's size, so that its weights come out of one segment.

What is reserved and idle by then is taken off the request. Before the first model that is one small segment at most; a
second model finds what the casts of the first left behind in segments that are partly used.
"""

from __future__ import annotations

from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.run import play_timeline
from vramwise.allocator.settings import parse_settings
from vramwise.facts.context import CONTEXT_BYTES
from vramwise.ghost.tape import Storage, Tape
from vramwise.ghost.weights import Weights

# The warm-up leaves this much of the card's free memory alone.
_LEFT_BY_THE_WARM_UP = int(1.2 * 1024**3)
# If no more than this is missing, nothing is asked for.
_WORTH_ASKING = int(1.5 * 1024**3)
_PROBE_BYTES = 8
_SMALL_SEGMENT = 2 * 1024**2


def warm_up(t: Tape, weights: Weights, total: int) -> None:
    """Ask for what the weights will take (`total`), less what is idle, and give it back at once.

    Before it accelerate asks each card with a number how much it has, which leaves a segment in the cache. On one of
    several ranks the card is given, and not asked.
    """
    t.mark("weights", "warm-up of the allocator")
    idle = 0 if t.count == 0 else _idle_bytes(t, weights.run.allocator.settings)
    if weights.sharding.ranks == 1:
        Storage(t, _PROBE_BYTES)
        idle = idle or _SMALL_SEGMENT
    wanted = _request(total, idle)
    if t.hardware.memory_bytes is not None:
        wanted = min(wanted, t.hardware.memory_bytes - CONTEXT_BYTES - _LEFT_BY_THE_WARM_UP)
    if weights.run.loading.halves_warm_up:
        wanted //= 2
    if wanted > 0:
        Storage(t, wanted // 2 * 2)


def _request(total: int, idle: int) -> int:
    missing = total - idle
    if missing > idle:
        return missing
    return idle + 1 if missing > _WORTH_ASKING else 0


def _idle_bytes(t: Tape, settings: str) -> int:
    """Reserved and not allocated, after all that was asked for so far."""
    allocator = CachingAllocator(parse_settings(settings, NEWEST))
    play_timeline(t.timeline(), allocator)
    return allocator.reserved_bytes - allocator.allocated_bytes
