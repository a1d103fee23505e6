"""Sums and means: the result, and the staging buffer of torch's reduction kernel if it splits one sum over blocks.

The launch arithmetic is that of ATen/native/cuda/Reduce.cuh (setReduceConfig); it needs the card's number of
multiprocessors and the threads of each.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64, DType
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.elementwise import gradient_of_shape
from vramwise.ghost.tape import Storage, Tape, Tensor

_WARP = 32
_VECTOR = 4
_MAX_THREADS = 512
_MIN_VALUES, _MAX_VALUES = 16, 256


def _power_below(number: int, limit: int) -> int:
    return limit if number >= limit else 1 << (max(number, 1).bit_length() - 1)


def staging_bytes(outputs: int, inputs: int, *, along_rows: bool, hardware: Hardware) -> tuple[int, int]:
    """Return (buffer, semaphores) for `outputs` sums of `inputs` values each; (0, 0) if no blocks share an output.

    `along_rows`: the summed values are contiguous (sum over the last dimension).
    """
    vector = 1
    if along_rows:
        wide, high = (inputs // _VECTOR if inputs >= 128 else inputs), outputs
    else:
        vector = next(size for size in (4, 2, 1) if outputs % size == 0)
        wide, high = outputs // vector, inputs
    limit = _MAX_THREADS // vector
    wide_power, high_power = _power_below(wide, limit), _power_below(high, limit)
    width = min(wide_power, _WARP)
    height = min(high_power, limit // width)
    width = min(wide_power, limit // height)
    step_in, step_out = (width, 1) if along_rows else (1, width)
    if -(-inputs // step_in) < min(height * 16, _MAX_VALUES):
        return 0, 0
    step_in *= height
    values = -(-inputs // step_in)
    target = hardware.multiprocessors * (hardware.threads_each // (width * height))
    grid = -(-(outputs // vector) // step_out)
    if values < _MAX_VALUES or grid > target:
        return 0, 0
    shares = max(min(-(-target // grid), -(-values // _MIN_VALUES)), -(-values // _MAX_VALUES))
    if shares <= 1:
        return 0, 0
    buffer = 4 * outputs * shares * (1 if along_rows else width * vector)
    return buffer, 4 * grid


def _sum_into(t: Tape, outputs: int, inputs: int, *, along_rows: bool) -> None:
    buffer, semaphores = staging_bytes(outputs, inputs, along_rows=along_rows, hardware=t.hardware)
    if buffer:
        held = Storage(t, buffer)
        Storage(t, semaphores)
        del held


def sum_to_shape(t: Tape, tensor: Tensor, shape: tuple[int, ...], *, dtype: DType | None = None) -> Tensor:
    """The gradient of a broadcast input: the tensor summed down to the input's shape, by default in its own dtype."""
    out = t.new(shape, dtype or tensor.dtype)
    if t.work is not None:
        t.work.reads(out, tensor)
    outputs = out.numel
    _sum_into(t, outputs, tensor.numel // outputs, along_rows=shape[-1] == 1 if shape else True)
    return out


def bring_to_expected(
    t: Tape, expected: tuple[tuple[tuple[int, ...], DType], ...], results: list[Tensor | None]
) -> None:
    """Sum results that are larger than their inputs, then cast those of another dtype, in the inputs' order."""
    for position, (shape, dtype) in enumerate(expected):
        result = results[position]
        if result is None:
            continue
        if result.shape != shape:
            numel = 1
            for side in shape:
                numel *= side
            if numel < result.numel:
                results[position] = sum_to_shape(t, result, shape)
                result = results[position]
        if result is not None and result.dtype is not dtype:
            results[position] = t.like(result, dtype)
        del result


def mean_last(t: Tape, x: Tensor) -> Tensor:
    """`x.mean(-1, keepdim=True)`"""
    out = t.new((*x.shape[:-1], 1), x.dtype)
    if t.work is not None:
        t.work.reads(out, x)
    _sum_into(t, out.numel, x.shape[-1], along_rows=True)
    return t.record(out, gradient_of_shape, (x,), (), x.shape)


def sum_all(t: Tape, x: Tensor) -> Tensor:
    """`x.sum()` of integers or flags, which are widened first. Used for counting tokens; no gradient."""
    out = t.new((), INT64 if not x.dtype.floating else FP32)
    widened = t.new(x.shape, INT64) if x.dtype is not INT64 and not x.dtype.floating else None
    _sum_into(t, 1, x.numel, along_rows=True)
    if t.work is not None:
        t.work.reads(out, x)
        t.work.no_kernel(widened)
    del widened
    return out
