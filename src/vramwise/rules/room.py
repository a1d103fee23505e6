"""How much memory a run leaves on its card, which decides whether wasted memory matters."""

from __future__ import annotations

from vramwise.timeline import MemoryReport

# A run that leaves less of the card may fail with one longer sample, one larger evaluation or one other process.
_AMPLE = 0.1
_TIGHT = 0.05

# Below this share a fit is tight, which has its own finding.
_MARGIN = 0.05


def fits_with_a_margin(memory: MemoryReport | None) -> bool:
    """Whether the run is predicted to fit its card, not tightly; False without a prediction."""
    if memory is None or not memory.capacity_bytes or memory.out_of_memory is not None or memory.retries:
        return False
    return memory.capacity_bytes - memory.highest_reserved_bytes >= _MARGIN * memory.capacity_bytes


def has_ample_room(reserved_bytes: int, capacity_bytes: int) -> bool:
    """Whether at least a tenth of the card is free at the peak."""
    return reserved_bytes <= (1 - _AMPLE) * capacity_bytes


def is_tight(memory: MemoryReport) -> bool:
    """Whether a run that fits leaves less than drivers, other processes and the prediction's error may take."""
    if not memory.capacity_bytes or memory.out_of_memory is not None:
        return False
    spare = memory.capacity_bytes - memory.highest_reserved_bytes
    return memory.retries > 0 or spare < _TIGHT * memory.capacity_bytes


def lacks_room(memory: MemoryReport) -> bool:
    """Whether the run does not fit its card, or only just; False without a card."""
    if not memory.capacity_bytes:
        return False
    failed = memory.out_of_memory is not None or memory.retries > 0
    return failed or not has_ample_room(memory.highest_reserved_bytes, memory.capacity_bytes)
