"""Kernels that were timed on an H200 (`kernels` of the runs in tests/data/truth/speed-*.jsonl), against their prices."""

import pytest

from vramwise.facts.gpus import find_gpu
from vramwise.facts.rates import efficiency, rates_of
from vramwise.ghost.ops.liger import _turns
from vramwise.ghost.work import Kernel
from vramwise.variants.speed.queues import on_card

H200 = rates_of(find_gpu("h200"))


def seconds(kernel: Kernel) -> float:
    assert H200 is not None
    return on_card(kernel, H200, efficiency())


# What Liger's loss adds to the gradient of a head in bf16: words, width, rows of a chunk; microseconds a launch.
ADDED = [(151_936, 1024, 8, 233.5), (128_256, 2048, 32, 400.4), (151_936, 896, 64, 201.0), (128_256, 2048, 256, 399.5)]


@pytest.mark.parametrize(("m", "n", "k", "us"), ADDED)
def test_a_product_that_is_added_reads_and_writes_slowly(m, n, k, us):
    kernel = Kernel("product", 2 * (m * k + k * n + m * n), 2 * m * n, "library", 0)
    kernel.dims, kernel.dtype, kernel.flops, kernel.adds = (1, m, n, k), "bf16", 2.0 * m * n * k, True
    assert seconds(kernel) * 1e6 == pytest.approx(us, rel=0.1)
    kernel.adds = False
    assert seconds(kernel) * 1e6 < 0.8 * us


# Liger's backward pass of RMSNorm: rows, columns; microseconds a launch.
NORMS = [
    *((2048, 896, 13.6), (8192, 896, 47.5), (16_384, 896, 100.0), (4096, 1536, 28.1), (4096, 2048, 31.1)),
    *((8192, 2048, 70.5), (8192, 2560, 78.3), (2048, 4096, 22.3), (4096, 4096, 46.8), (16_384, 4096, 188.3)),
    (262_144, 128, 125.2),
]


@pytest.mark.parametrize(("rows", "columns", "us"), NORMS)
def test_blocks_that_go_through_rows_wait_at_each(rows, columns, us):
    kernel = Kernel("triton", 4 * rows * columns, 2 * rows * columns, "triton", 0)
    kernel.turns = _turns(rows, columns)
    assert seconds(kernel) * 1e6 == pytest.approx(us, rel=0.2)
