"""What losses read and write: rows too long for shared memory, Liger's chunks, in the types that are really there."""

import pytest

from vramwise.ghost.dtypes import BF16, FP32
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.liger import list_chunks
from vramwise.ghost.ops.loss import log_softmax
from vramwise.ghost.work import WorkTape


@pytest.mark.parametrize(("words", "reads"), [(32_000, 1), (128_256, 3)])
def test_a_softmax_reads_long_rows_once_for_each_pass(words, reads):
    t = WorkTape(Hardware())
    x = t.new((64, words), FP32)
    log_softmax(t, x)
    assert t.work.kernels[-1].read == reads * 64 * words * 4


def test_liger_adds_up_the_gradient_of_a_weight_in_its_own_type():
    t = WorkTape(Hardware())
    hidden = t.new((64, 128), BF16)
    moved = []
    for dtype in (BF16, FP32):
        weight = t.new((1024, 128), dtype)
        before = len(t.work.kernels)
        list_chunks(t.work, hidden, weight, BF16, trained=True, wants=True)
        moved.append(sum(kernel.read + kernel.written for kernel in t.work.kernels[before:]))
        chunks = sum(kernel.family == "triton" for kernel in t.work.kernels[before:])
    assert moved[1] - moved[0] == chunks * 2 * 1024 * 128 * (FP32.size - BF16.size)
