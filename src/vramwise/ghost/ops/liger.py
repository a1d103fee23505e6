"""Liger's Triton kernels: in-place norms, gated activations and rotary embeddings, and a loss without logits.

From liger-kernel 0.8.1, 0.8.4 and 0.8.5: the fused linear cross entropy computes its gradient during forward, one chunk
of rows at a time; newer versions do so in one buffer of logits and add to the weight's gradient in place.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BOOL, FP32, DType
from vramwise.ghost.ops.elementwise import all_gradients, to_float, without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.ops.reduce import sum_all, sum_to_shape
from vramwise.ghost.ops.shape import alias
from vramwise.ghost.tape import Grads, Node, Tape, Tensor
from vramwise.ghost.work import Work, piece_of
from vramwise.types import ChunksInPlace

# From this many rows up to this width, RMSNorm's backward kernel processes several rows at once (`rms_norm.py`).
_MANY_ROWS, _NARROW, _AT_ONCE = 4096 * 8, 256, 16


def _turns(rows: int, width: int) -> int:
    """Return how often RMSNorm's backward kernel goes on to the next row, or group of rows."""
    return rows // _AT_ONCE if rows >= _MANY_ROWS and width <= _NARROW else rows


def _norm_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    in_place, weight_dtype, heads_first = node.extra
    if heads_first and not grad.heads_first:
        grad = t.like(grad)  # also made contiguous
        grad.heads_first = True
    partial = None
    if node.edges[1] is not None:
        partial = t.new((t.hardware.multiprocessors, grad.shape[-1]), FP32)
    to_x = alias(grad, grad.shape) if in_place else t.like(grad)
    if t.work is not None:
        made, over = ((partial,), (grad,)) if in_place else ((partial, to_x), ())
        t.work.function()
        kernel = t.work.fused(made, "triton", read=2 * grad.numel * grad.dtype.size, over=over)
        kernel.turns = _turns(grad.numel // grad.shape[-1], grad.shape[-1])
    to_weight = None
    if partial is not None:
        summed = sum_to_shape(t, partial, (grad.shape[-1],))
        to_weight = summed if weight_dtype is FP32 else t.like(summed, weight_dtype)
        del summed
    return to_x, to_weight


def rms_norm(t: Tape, x: Tensor, weight: Tensor, *, in_place: bool) -> Tensor:
    """RMSNorm: saves its input and one number per row; `in_place`: the gradient overwrites the incoming one."""
    out = t.like(x)
    rstd = t.new((x.numel // x.shape[-1],), FP32)
    if t.work is not None:
        t.work.function()
        t.work.fused((out, rstd), "triton", read=x.numel * x.dtype.size)
    t.record(out, _norm_backward, (x, weight), (without_node(x), weight, rstd), (in_place, weight.dtype, x.heads_first))
    del rstd
    return out


def _gated_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    up, gate = node.saved
    if t.work is not None:
        t.work.function()
        t.work.fused((), "triton", read=3 * gate.numel * gate.dtype.size, over=(gate, up))
    return alias(gate, gate.shape), alias(up, up.shape)


def gated_activation(t: Tape, gate: Tensor, up: Tensor, *, copies: bool = False) -> Tensor:
    """`act(gate) * up` in one kernel: saves both, and overwrites them with their gradients.

    `copies`: both are parts of one tensor, and are made contiguous first.
    """
    left = t.like(gate) if copies else without_node(gate)
    right = t.like(up) if copies else without_node(up)
    out = t.like(gate)
    if t.work is not None:
        t.work.function()
        t.work.fused((out,), "triton", read=2 * gate.numel * gate.dtype.size)
    t.record(out, _gated_backward, (gate, up), (left, right))
    del left, right
    return out


def _rotated_backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    """Rotate gradients in place, too, after those that are not in token order are copied."""
    parts = all_gradients(grads, 2)
    if t.work is not None:
        t.work.function()
        t.work.rewritten(parts, "triton")
    return tuple([t.new(part.shape, part.dtype) if part is not None and part.heads_first else part for part in parts])


def _contiguous(t: Tape, x: Tensor) -> Tensor:
    """Return x itself, or a copy if it is part of a larger tensor or not in token order."""
    partial = x.storage is not None and x.storage.nbytes > x.numel * x.dtype.size
    return t.new(x.shape, x.dtype) if partial or x.heads_first else without_node(x)


def rotate_in_place(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Apply rotary embeddings in place to queries and keys, and to their gradients in backward."""
    turned = _contiguous(t, q), _contiguous(t, k)
    if t.work is not None:
        t.work.function()
        t.work.rewritten(turned, "triton")
    t.record_all(turned, _rotated_backward, (q, k), (cos, sin))
    return turned


def _fused_loss_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    one = t.new((), FP32)
    same = t.new((), BOOL)
    both = t.new((), BOOL)
    del both, same, one
    to_weight, to_hidden = node.saved
    if t.work is not None:
        t.work.sync()  # the host checks whether the loss was scaled; it is, and so are the gradients
        for made in (to_hidden, to_weight):
            if made is not None:
                t.work.rewritten((made,), "triton")
    return to_hidden, to_weight


def chunk_rows(rows: int, hidden: int, vocabulary: int) -> int:
    """Return how many rows of logits exist at a time: about as many bytes as the hidden states have."""
    chunk = -(-rows // -(-vocabulary // hidden))
    return int(min(1 << (chunk - 1).bit_length(), rows))


def fused_linear_loss(
    t: Tape, hidden: Tensor, weight: Tensor, target: Tensor, chunks_in_place: ChunksInPlace = "never"
) -> Tensor:
    """Head and cross entropy in one: the gradients of hidden states and weight are ready on return."""
    alike = hidden.dtype is weight.dtype and t.autocast in (None, hidden.dtype)
    in_place = chunks_in_place == "always" or (chunks_in_place == "uncast" and alike)
    if in_place:
        hidden, weight = autocast_input(t, hidden), autocast_input(t, weight)
    rows = hidden.shape[0]
    wants = t.grad_enabled and (hidden.node is not None or weight.node is not None)
    to_hidden = t.like(hidden)
    to_weight = t.like(weight) if wants and weight.node is not None else None
    losses = t.new((rows,), FP32)
    mask = t.new((rows,), BOOL)
    sum_all(t, mask)
    if t.work is not None:
        t.work.sync()  # the host reads the number of labels
        list_chunks(t.work, hidden, weight, t.autocast or hidden.dtype, trained=to_weight is not None, wants=wants)
    chunk = None
    if in_place:
        buffer = t.new((chunk_rows(rows, hidden.shape[1], weight.shape[0]), weight.shape[0]), hidden.dtype)
        if t.work is not None:
            t.work.no_kernel(buffer)
        del buffer
        t.workspace()
    else:
        chunk = _fused_chunks(t, hidden, weight, trained=to_weight is not None, drops=chunks_in_place != "never")
    out = t.new((), FP32)
    del mask, losses, chunk
    if wants:
        out.node = t.node(_fused_loss_backward, (hidden, weight), (to_hidden, to_weight))
    del to_hidden, to_weight
    return out


def list_chunks(work: Work, hidden: Tensor, weight: Tensor, low: DType, *, trained: bool, wants: bool) -> None:
    """Count the kernels of each chunk: logits, the loss over them, and the products for the gradients.

    The loss has one thread block per row. The weight's gradient is accumulated in the weight's dtype.
    """
    (rows, width), vocabulary = hidden.shape, weight.shape[0]
    step = piece_of(rows, chunk_rows(rows, width, vocabulary))
    wider = weight.numel * (weight.dtype.size - low.size)
    for start in range(0, rows, step):
        count = min(step, rows - start)
        logits = count * vocabulary * low.size
        work.into(count, vocabulary, width, dtype=low)
        loss = work.stream(2 * logits, logits, "triton")
        loss.by, loss.blocks = "triton", count
        if wants:
            part = count * width * low.size
            work.into(count, width, vocabulary, dtype=low)
            work.stream(part, part)  # copied into place
        if wants and trained:
            summed = work.product(None, vocabulary, width, count, dtype=low)
            summed.read += wider
            summed.written += wider


def _fused_chunks(t: Tape, hidden: Tensor, weight: Tensor, *, trained: bool, drops: bool) -> Tensor | None:
    """Allocate chunk by chunk: logits that become their own gradient; return the last ones, which live a while.

    `drops`: each chunk is freed before the next one is allocated (liger-kernel 0.8.4); otherwise after it.

    A chunk's part of the weight's gradient is a matrix of the whole weight's size, and once more in fp32, before it is
    added; only if the weight itself is in fp32 it is added in place. Autocast copies such a weight for each product:
    for the logits it is transposed, which autocast does not cache.
    """
    (rows, width), (vocabulary, _) = hidden.shape, weight.shape
    low = t.autocast or hidden.dtype
    step = chunk_rows(rows, width, vocabulary)
    earlier: Tensor | None = None
    for start in range(0, rows, step):
        count = min(step, rows - start)
        logits = _logits_chunk(t, count, weight, low, hidden.dtype)
        if not trained:
            earlier = logits
        copied = autocast_input(t, weight)
        part = t.new((count, width), low)  # part of the hidden states' gradient, copied into place
        if t.work is not None:
            t.work.no_kernel(part)
        del part
        del copied
        if trained:
            earlier = logits
            _add_weight_part(t, count, weight, low, hidden.dtype)
        del logits
        if drops:
            earlier = None
    return earlier


def _logits_chunk(t: Tape, count: int, weight: Tensor, low: DType, outer: DType) -> Tensor:
    copied = t.new(weight.shape, low) if weight.dtype is not low else None
    rows = t.new((count, weight.shape[1]), low) if outer is not low else None
    logits = t.new((count, weight.shape[0]), low)
    if t.work is not None:
        t.work.no_kernel(logits)
        t.work.reads(copied, weight)
    t.workspace()
    del rows, copied
    return logits


def _add_weight_part(t: Tape, count: int, weight: Tensor, low: DType, outer: DType) -> None:
    if weight.dtype is FP32 and low is not FP32:
        if outer is not low:
            t.new((count, weight.shape[1]), low)
        return
    part = t.new(weight.shape, low)
    if t.work is not None:
        t.work.no_kernel(part)
        t.work.over(weight)
    wide = to_float(t, part)
    del part, wide


def _in_place_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (alias(node.saved[0], node.saved[0].shape),)


def in_place_loss(t: Tape, logits: Tensor) -> Tensor:
    """Liger's cross entropy: the gradient overwrites the logits during forward."""
    rows = logits.numel // logits.shape[-1]
    losses = t.new((rows,), FP32)
    out = t.new((), FP32)
    if t.work is not None:
        t.work.fused((losses,), "triton", read=2 * logits.numel * logits.dtype.size, over=(logits,))
        t.work.sync()
    del losses
    return t.record(out, _in_place_backward, (logits,), (without_node(logits),))


def _cut_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    weight, hidden = node.saved[1:]
    to_hidden = None if node.edges[0] is None else t.like(hidden)
    to_weight = None if node.edges[1] is None else t.like(weight)
    if t.work is not None:
        # the logits again, and a product for each gradient
        products = 1 + (to_hidden is not None) + (to_weight is not None)
        flops = products * 2.0 * hidden.numel * weight.shape[0]
        t.work.fused((to_hidden, to_weight), "cut loss", read=0, flops=flops).dtype = hidden.dtype.name
    return to_hidden, to_weight


def cut_loss(t: Tape, hidden: Tensor, weight: Tensor) -> Tensor:
    """Apple's cut cross entropy: besides the inputs, it keeps only a log-sum-exp per row."""
    rows = hidden.numel // hidden.shape[-1]
    sums = t.new((rows,), FP32)
    losses = t.new((rows,), FP32)
    out = t.new((), FP32)
    if t.work is not None:
        flops = 2.0 * hidden.numel * weight.shape[0]
        t.work.fused((sums, losses), "cut loss", read=0, flops=flops).dtype = hidden.dtype.name
    del losses
    return t.record(out, _cut_backward, (hidden, weight), (without_node(hidden), weight, sums))
