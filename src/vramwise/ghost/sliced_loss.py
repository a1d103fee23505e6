"""TRL's loss before 1.15: the head and its cross entropy for some labelled tokens at a time, each slice checkpointed.

After `_chunked_cross_entropy_loss` of `sft_trainer.py` (1.9 to 1.14). A slice casts the whole weight of the head for
itself: autocast does not keep copies of a transposed view. Up to 1.12 both operands are first made fp32.
"""

from __future__ import annotations

from functools import partial

from vramwise.ghost.checkpointing import non_reentrant
from vramwise.ghost.dtypes import BOOL, FP32, INT64
from vramwise.ghost.ops.elementwise import add_scalar, cast, result_activation, scale, to_float
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.shape import contiguous, indexed, narrow, sliced, transpose_last, view
from vramwise.ghost.tape import Grads, Node, Tape, Tensor

_TOKENS = 256
# What the entropy of a slice saves: the exponentials, both factors of their product, the mask.
_SAVED_BY_ENTROPY = 4
# Kernels on a number or a label for each token: which are valid, which of the likeliest are right, and their sums.
_SMALL_OF_ACCURACY = 8


def sliced_loss(t: Tape, hidden: Tensor, weight: Tensor, *, in_fp32: bool, softcap: bool, scaled: bool) -> Tensor:
    """The loss of the labelled tokens; all but the last of each row have a label where nothing else is known.

    Rows of one token have none, and their only slice is empty.
    """
    rows, tokens, width = hidden.shape
    count = rows * (tokens - 1)
    labelled = max(1, count if t.labelled is None else min(t.labelled, count))
    shifted = narrow(t, hidden, (rows, tokens - 1, width))
    flat = view(t, contiguous(t, shifted) if rows > 1 else shifted, (count, width))
    del shifted
    labels, valid = t.new((count,), INT64), t.new((count,), BOOL)
    order = t.new((count,), INT64)
    flat = indexed(t, flat, (count, width))
    head = partial(_slice, weight=weight, target=labels, in_fp32=in_fp32, softcap=softcap, scaled=scaled)
    total: Tensor | None = None
    for start in range(0, labelled, _TOKENS):
        part = sliced(t, flat, (min(_TOKENS, count - start), width))
        loss = non_reentrant(t, head, part)
        total = add_scalar(t, loss) if total is None else _sum(t, total, loss)
    assert total is not None
    del labels, valid, order, flat, weight, head
    return scale(t, total)


def _slice(
    t: Tape, rows: Tensor, *, weight: Tensor, target: Tensor, in_fp32: bool, softcap: bool, scaled: bool
) -> Tensor:
    logits = _logits(t, rows, weight, in_fp32=in_fp32)
    if scaled:
        logits = scale(t, logits)
    if softcap:
        logits = scale(t, result_activation(t, scale(t, logits)))
    log_probs = log_softmax(t, to_float(t, logits))
    loss = nll_loss(t, log_probs, target)
    _entropy(t, log_probs)
    return loss


def _logits(t: Tape, rows: Tensor, weight: Tensor, *, in_fp32: bool) -> Tensor:
    """In fp32; where both operands were made fp32, the product is still autocast's."""
    if in_fp32:
        return linear(t, to_float(t, rows), transpose_last(t, to_float(t, weight)), transposed=True)
    low = linear(t, rows, transpose_last(t, cast(t, weight, rows.dtype)), transposed=True)
    return to_float(t, low)


def _entropy(t: Tape, log_probs: Tensor) -> None:
    """Only for the log: its graph is gone before backward, but recomputation runs up to what it saved last.

    The likeliest token is looked for, too: another pass over the logits.
    """
    exponentials = t.like(log_probs)
    product = t.like(log_probs)
    sums = t.new((log_probs.shape[0],), FP32)
    if t.work is not None:
        t.work.reads(product, exponentials, log_probs)
        t.work.reads(sums, product)
        t.work.stream(log_probs.numel * log_probs.dtype.size, 0, "strided")
        t.work.stream(0, 0, count=_SMALL_OF_ACCURACY)
    del product
    if t.grad_enabled and log_probs.node is not None:
        t.node(_never, (), (None,) * _SAVED_BY_ENTROPY)
    del sums, exponentials


def _never(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Nothing reaches the entropy in backward."""
    raise AssertionError("the entropy has no gradient")


def _both(t: Tape, node: Node, grad: Tensor) -> Grads:
    return grad, grad


def _sum(t: Tape, total: Tensor, loss: Tensor) -> Tensor:
    out = t.new((), FP32)
    if t.grad_enabled and loss.node is not None:
        out.node = t.node(_both, (total, loss), ())
    return out
