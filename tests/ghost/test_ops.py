"""What each op allocates, keeps and frees: bytes after forward, after dropping the inputs, and at backward's peak."""

from collections.abc import Callable

import pytest

from vramwise.ghost.dtypes import BF16, FP32, INT64
from vramwise.ghost.engine import backward
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.ops.attention import fused_attention
from vramwise.ghost.ops.elementwise import activation, cast, dropout, mul, rsqrt, square
from vramwise.ghost.ops.liger import chunk_rows, fused_linear_loss
from vramwise.ghost.ops.loss import embedding, log_softmax, nll_loss
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.reduce import staging_bytes
from vramwise.ghost.ops.row_kernels import softmax
from vramwise.ghost.ops.shape import repeat_heads
from vramwise.ghost.tape import Leaf, Parameter, Tape, Tensor
from vramwise.timeline import Action

MIB = 1024**2


class Meter:
    def __init__(self) -> None:
        self.t = Tape(Hardware())
        self.t.workspace()
        self.t.in_backward = True
        self.t.workspace()
        self.t.in_backward = False

    def wanting(self, *shape: int, dtype=BF16) -> Leaf:
        made = self.t.new(shape, dtype)
        leaf = Leaf(made.storage, made.shape, made.numel, made.dtype)
        leaf.require_grad()
        return leaf

    def live(self) -> int:
        return sum(e.size_bytes * (1 if e.action == Action.ALLOC else -1) for e in self.t.events)

    def peak(self, start: int, run: Callable[[], object]) -> int:
        """The most bytes above `start` while something runs."""
        position = len(self.t.events)
        run()
        level = highest = self.live() - start
        level = sum(e.size_bytes * (1 if e.action == Action.ALLOC else -1) for e in self.t.events[:position]) - start
        highest = level
        for event in self.t.events[position:]:
            level += event.size_bytes * (1 if event.action == Action.ALLOC else -1)
            highest = max(highest, level)
        return highest


N = 1024 * 1024  # elements: 2 MiB in bf16, 4 MiB in fp32


@pytest.mark.parametrize(
    ("op", "dtype", "kept_mib"),
    [
        (lambda t, x: cast(t, x, FP32), BF16, 4),  # only the result: a cast saves nothing
        (square, FP32, 8),  # result and input
        (rsqrt, FP32, 4),  # the result is what is saved
        (activation, BF16, 4),  # result and input
        (softmax, FP32, 4),  # the result is what is saved
        (lambda t, x: dropout(t, x, 0.1), BF16, 3),  # result and a mask of bytes
    ],
)
def test_what_stays_after_forward_when_the_input_is_dropped(op, dtype, kept_mib):
    meter = Meter()
    start = meter.live()
    x = meter.wanting(1024, 1024, dtype=dtype)
    middle = cast(meter.t, mul(meter.t, x, x), dtype)
    before = meter.live() - start
    out = op(meter.t, middle)
    del middle
    kept = meter.live() - start - (before - N * dtype.size)
    assert kept == kept_mib * MIB
    assert out is not None


def test_a_frozen_linear_saves_nothing_of_its_input():
    meter = Meter()
    weight = Parameter(meter.t, "w", (1024, 1024), BF16, trainable=False)
    start = meter.live()
    x = mul(meter.t, *[meter.wanting(1024, 1024)] * 2)
    out = linear(meter.t, x, weight)
    del x
    assert meter.live() - start == (2 + 2) * MIB  # the leaf (saved by mul) and the result
    del out


def test_a_trained_linear_keeps_its_input():
    meter = Meter()
    weight = Parameter(meter.t, "w", (1024, 1024), BF16, trainable=True)
    start = meter.live()
    x = meter.t.new((1024, 1024), BF16)
    out = linear(meter.t, x, weight)
    del x
    assert meter.live() - start == 4 * MIB
    del out
    assert meter.live() - start == 0


def test_autocast_keeps_one_copy_of_a_trained_fp32_weight_and_none_of_a_frozen_one():
    meter = Meter()
    t = meter.t
    trained = Parameter(t, "a", (512, 512), FP32, trainable=True)
    frozen = Parameter(t, "b", (512, 512), FP32, trainable=False)
    x = t.new((4, 512), BF16)
    t.autocast = BF16
    t.grad_enabled = False
    start = meter.live()
    for _ in range(3):
        linear(t, x, trained)
        linear(t, x, frozen)
    assert meter.live() - start == 512 * 512 * 2
    t.casts.clear()
    assert meter.live() - start == 0


def test_cross_entropy_holds_the_log_softmax_and_backward_two_gradients():
    meter = Meter()
    t = meter.t
    tokens, vocabulary = 64, 4096
    logits = meter.wanting(tokens, vocabulary, dtype=FP32)
    labels = t.new((tokens,), INT64)
    start = meter.live()
    full = tokens * vocabulary * 4
    loss = nll_loss(t, log_softmax(t, logits), labels)
    assert full <= meter.live() - start <= full + 16
    grad = t.new((), FP32)
    peak = meter.peak(start, lambda: backward(t, loss.node, grad))
    assert 3 * full <= peak <= 3 * full + 64


def test_attention_backward_workspace_of_grouped_queries():
    meter = Meter()
    t = meter.t
    q, k, v = (meter.wanting(2, heads, 1024, 64) for heads in (32, 4, 4))
    out = fused_attention(t, q, k, v)
    start = len(t.events)
    backward(t, out.node, t.like(out))
    # fp32 dq, dk and dv for all heads, row sums: measured on an H200
    assert 33_816_832 in [event.size_bytes for event in t.events[start:]]


def test_repeating_heads_is_undone_by_a_sum():
    meter = Meter()
    t = meter.t
    k = meter.wanting(2, 4, 128, 64)
    out = repeat_heads(t, k, 8)
    assert out.shape == (2, 32, 128, 64)
    backward(t, out.node, t.like(out))
    assert k.grad is not None
    assert k.grad.shape == (2, 4, 128, 64)


def test_the_embedding_gradient_has_the_tables_size():
    meter = Meter()
    t = meter.t
    table = Parameter(t, "embed", (4096, 256), BF16, trainable=True)
    ids = t.new((2, 128), INT64)
    out = embedding(t, table, ids)
    backward(t, out.node, t.like(out))
    assert table.grad is not None
    assert table.grad.shape == (4096, 256)


@pytest.mark.parametrize("in_place", ["never", "uncast", "always"])
def test_liger_loss_never_holds_more_than_two_chunks_of_logits(in_place):
    assert chunk_rows(4096, 2048, 128256) == 128
    meter = Meter()
    t = meter.t
    hidden = meter.wanting(4096, 2048)
    head = Parameter(t, "head", (128256, 2048), BF16, trainable=False)
    target = t.new((4096,), INT64)
    start = meter.live()
    peak = meter.peak(start, lambda: fused_linear_loss(t, hidden, head, target, in_place))
    chunks = 2 if in_place == "never" else 1
    assert peak < chunks * 2 * 128 * 128256 + 4096 * 2048 * 2 + MIB


def test_older_liger_makes_the_heads_gradient_anew_for_each_chunk():
    peaks = []
    for in_place in ("never", "always"):
        meter = Meter()
        hidden = meter.wanting(512, 256)
        head = Parameter(meter.t, "head", (32000, 256), BF16, trainable=True)
        target = meter.t.new((512,), INT64)
        start = meter.live()
        arguments = (meter.t, hidden, head, target, in_place)
        peaks.append(meter.peak(start, lambda given=arguments: fused_linear_loss(*given)))
        del arguments
    assert peaks[0] - peaks[1] >= 32000 * 256 * (2 + 4)  # in bf16, and in fp32 before it is added


@pytest.mark.parametrize(
    ("outputs", "inputs", "along_rows", "expected"),
    [
        (2048, 2048, False, (32 * MIB, 64)),  # a norm's weight gradient, 2048 tokens
        (1, 262144, True, (128, 4)),
        (1, 917504, True, (448, 4)),
        (1, 65536, True, (0, 0)),
        (2048, 2048, True, (0, 0)),
    ],
)
def test_reduction_buffers_as_seen_on_an_h200(outputs, inputs, along_rows, expected):
    assert staging_bytes(outputs, inputs, along_rows=along_rows, hardware=Hardware()) == expected


def test_tensor_shapes_are_broadcast():
    meter = Meter()
    a = meter.t.new((2, 8, 16, 4), BF16)
    b = meter.t.new((1, 1, 16, 4), BF16)
    out: Tensor = mul(meter.t, a, b)
    assert out.shape == (2, 8, 16, 4)
