"""The rotary tables' buffers: the inverse frequencies and their copy."""

from __future__ import annotations

from vramwise.ghost.tape import Storage, Tape
from vramwise.types import ModelSpec


def rotary_buffers(t: Tape, model: ModelSpec, *, computed_on_device: bool) -> list[Storage]:
    """Both buffers. Computed on the host they are only copied; on the device the steps of the formula pass by."""
    if model.rotary_fraction == 0:
        return []
    t.mark("weights", "rotary frequencies")
    nbytes = max(int(model.head_dim * model.rotary_fraction) // 2, 1) * 4
    if not computed_on_device:
        return [Storage(t, nbytes), Storage(t, nbytes)]
    moved = Storage(t, nbytes)
    copied = Storage(t, nbytes)
    del moved
    range_ = Storage(t, nbytes)
    Storage(t, 8)
    del copied
    divided = Storage(t, nbytes)
    kept = [Storage(t, nbytes)]
    del divided
    del range_
    kept.append(Storage(t, nbytes))
    return kept
