"""Quantising a weight on the device while loading: what stays, and what passes.

bitsandbytes nf4 with double quantisation: the weight arrives in the storage type, is packed to half a byte an element
with an fp32 scale for 64; the scales lose their mean and are packed to 8 bits with an fp32 scale for 256.
8-bit: it arrives in fp16; where it was on the device before, in the storage type, both copies are there for a moment.
"""

from __future__ import annotations

from math import prod

from vramwise.ghost.dtypes import FP16, DType
from vramwise.ghost.ops.quantised import SCALE_BLOCK, scales
from vramwise.ghost.ops.reduce import staging_bytes
from vramwise.ghost.tape import Storage, Tape

_CODE_BYTES = 16 * 4
_SCALE_CODE_BYTES = 256 * 4


def quantise_4bit(
    t: Tape, shape: tuple[int, ...], dtype: DType, arrived: Storage | None = None, *, nested: bool = True
) -> list[Storage]:
    """Quantise a weight, brought to the device now or `arrived` already; returns the blocks that stay.

    `nested`: its scales are quantised too.
    """
    numel = prod(shape)
    count = scales(numel)
    weight = arrived or Storage(t, numel * dtype.size)
    absmax = Storage(t, count * 4)
    packed = Storage(t, -(-numel // 2))
    code = Storage(t, _CODE_BYTES)
    copied = Storage(t, _CODE_BYTES)
    largest = Storage(t, 4)
    del copied, largest
    if not nested:
        del weight
        return [packed, code, absmax]
    mean = _mean(t, count)
    centred = Storage(t, count * 4)
    kept = [packed, code, mean]
    if "dynamic map" not in t.once:
        t.once["dynamic map"] = Storage(t, _SCALE_CODE_BYTES)
    kept.append(Storage(t, -(-count // SCALE_BLOCK) * 4))
    kept.append(Storage(t, count))
    kept.append(Storage(t, _SCALE_CODE_BYTES))
    del centred
    del absmax
    del weight
    return kept


def packed_4bit(t: Tape, shape: tuple[int, ...]) -> list[Storage]:
    """A weight that the checkpoint holds packed: the same blocks, and nothing passes by."""
    numel = prod(shape)
    count = scales(numel)
    sizes = (-(-numel // 2), _CODE_BYTES, 4, -(-count // SCALE_BLOCK) * 4, count, _SCALE_CODE_BYTES)
    return [Storage(t, size) for size in sizes]


def quantise_8bit(t: Tape, shape: tuple[int, ...]) -> list[Storage]:
    """One byte an element and an fp32 scale a row, from a copy in fp16."""
    numel = prod(shape)
    weight = Storage(t, numel * FP16.size)
    kept = [Storage(t, numel // shape[-1] * 4), Storage(t, numel)]
    del weight
    return kept


def _mean(t: Tape, count: int) -> Storage:
    out = Storage(t, 4)
    buffer, semaphores = staging_bytes(1, count, along_rows=True, hardware=t.hardware)
    if buffer:
        held = Storage(t, buffer)
        Storage(t, semaphores)
        del held
    return out
