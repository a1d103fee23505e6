"""Losses that trainers compute themselves, from logits or from hidden states.

Weighted losses, from the fp32 logits that the model hands out: the model is run without labels; outside of it the
logits are shifted (a copy), those of counted tokens picked (a copy), and turned into log-probabilities. Every token is
taken to count: masked prompts make the copies smaller. LLaMA-Factory's ("whole") shift the labels, and take a cross
entropy of all logits.

TRL's loss before 1.15: the head and its cross entropy for some labelled tokens at a time, each slice checkpointed.
After `_chunked_cross_entropy_loss` of `sft_trainer.py` (1.9 to 1.14). A slice casts the whole weight of the head for
itself: autocast does not keep copies of a transposed view. Up to 1.12 both operands are first made fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vramwise.ghost.checkpointing import non_reentrant
from vramwise.ghost.dtypes import BOOL, FP32, INT64
from vramwise.ghost.ops.elementwise import (
    add_scalar,
    cast,
    gradient_as,
    mul,
    result_activation,
    same_gradients,
    scale,
    to_float,
    without_node,
)
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.shape import contiguous, indexed, narrow, sliced, transpose_last, view
from vramwise.ghost.tape import Grads, Node, Tape, Tensor

WeightedLoss = Callable[[Tape, Tensor, Tensor], Tensor]
_TOP = 20


def probability_weighted(t: Tape, logits: Tensor, labels: Tensor) -> Tensor:
    """Dynamic fine-tuning: each token's loss times its own probability."""
    rows, targets, mask = _shifted(t, logits, labels)
    picked = _picked(t, rows)
    logprobs = log_softmax(t, to_float(t, picked))
    del picked
    chosen = _of_each_row(t, logprobs, t.new((rows.shape[0], 1), INT64))
    weights = scale(t, without_node(scale(t, without_node(chosen))))
    loss = _mean(t, mul(t, weights, chosen))
    del rows, targets, mask, logprobs, chosen, weights
    return loss


def entropy_weighted(t: Tape, logits: Tensor, labels: Tensor) -> Tensor:
    """Entropy-aware focal training: each token's loss times the entropy of its largest logits."""
    rows, targets, mask = _shifted(t, logits, labels)
    weights = _entropies(t, rows)
    picked = _picked(t, rows)
    logprobs = log_softmax(t, picked)
    per_token = _of_each_row(t, logprobs, t.new((rows.shape[0],), INT64))
    del picked, logprobs
    loss = _mean(t, mul(t, per_token, weights))
    del rows, targets, mask, weights, per_token
    return loss


def probability_weighted_whole(t: Tape, logits: Tensor, labels: Tensor) -> Tensor:
    """Dynamic fine-tuning by a cross entropy of every token; the labels are shifted instead of the logits."""
    logits = to_float(t, logits)
    targets, per_token = _of_every_token(t, logits)
    weights = scale(t, without_node(per_token))
    loss = _mean(t, mul(t, per_token, weights))
    del targets, per_token, weights
    return loss


def entropy_weighted_whole(t: Tape, logits: Tensor, labels: Tensor) -> Tensor:
    """Entropy-aware focal training the same way: the logits are copied for the entropies alone."""
    logits = to_float(t, logits)
    targets, per_token = _of_every_token(t, logits)
    weights = _entropies(t, view(t, logits, (per_token.shape[0], logits.shape[-1])))
    loss = _mean(t, mul(t, per_token, weights))
    del targets, per_token, weights
    return loss


def _of_every_token(t: Tape, logits: Tensor) -> tuple[Tensor, Tensor]:
    batch, tokens, vocabulary = logits.shape
    targets = t.new((batch * tokens,), INT64)
    logprobs = log_softmax(t, view(t, logits, (batch * tokens, vocabulary)))
    return targets, _of_each_row(t, logprobs, targets)


def _shifted(t: Tape, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits of all tokens but the last, labels of all but the first, and which of them count."""
    batch, tokens, vocabulary = logits.shape
    left = max(tokens - 1, 1)
    kept = contiguous(t, narrow(t, logits, (batch, left, vocabulary)))
    targets = t.new((batch, left), INT64)
    count = batch * left
    return view(t, kept, (count, vocabulary)), targets, t.new((count,), BOOL)


def _picked(t: Tape, rows: Tensor) -> Tensor:
    """`rows[mask]`: a copy; the numbers of the rows are kept."""
    numbers = t.new((rows.shape[0], 1), INT64)
    return t.record(t.new(rows.shape, rows.dtype), gradient_as, (rows,), (numbers,), (rows.shape, FP32))


def _of_each_row(t: Tape, rows: Tensor, index: Tensor) -> Tensor:
    """Return one number a row, by index."""
    return t.record(t.new((rows.shape[0],), rows.dtype), gradient_as, (rows,), (index,), (rows.shape, FP32))


def _entropies(t: Tape, rows: Tensor) -> Tensor:
    """Of the largest logits, without a graph: the rows are picked once more for it."""
    picked = t.new(rows.shape, FP32)
    largest = t.new((rows.shape[0], _TOP), FP32)
    places = t.new((rows.shape[0], _TOP), INT64)
    del picked, places
    probabilities = t.like(largest)
    terms = t.like(probabilities)
    entropy = t.new((rows.shape[0],), FP32)
    del terms, probabilities, largest
    return scale(t, entropy)


def _mean(t: Tape, per_token: Tensor) -> Tensor:
    """Return the sum over tokens, divided by how many count."""
    total = t.new((), FP32)
    t.record(total, gradient_as, (per_token,), (), (per_token.shape, FP32))
    return scale(t, total)


WEIGHTED: dict[str, WeightedLoss] = {
    "dft": probability_weighted,
    "eaft": entropy_weighted,
    "dft_whole": probability_weighted_whole,
    "eaft_whole": entropy_weighted_whole,
}


_TOKENS = 256
# What the entropy of a slice saves: the exponentials, both factors of their product, the mask.
_SAVED_BY_ENTROPY = 4
# Kernels on a number or a label for each token: which are valid, which of the likeliest are right, and their sums.
_SMALL_OF_ACCURACY = 8


def sliced_loss(t: Tape, hidden: Tensor, weight: Tensor, *, in_fp32: bool, softcap: bool, scaled: bool) -> Tensor:
    """Return the loss of the labelled tokens; all but the last of each row have a label where nothing else is known.

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


def _sum(t: Tape, total: Tensor, loss: Tensor) -> Tensor:
    return t.record(t.new((), FP32), same_gradients, (total, loss))
