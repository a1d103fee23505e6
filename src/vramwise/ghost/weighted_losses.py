"""Losses that the trainer computes itself, from the fp32 logits that the model hands out: each token's loss weighted.

The model is run without labels; outside of it the logits are shifted (a copy), those of counted tokens picked (a
copy), and turned into log-probabilities. Every token is taken to count: masked prompts make the copies smaller.
LLaMA-Factory's ("whole") shift the labels, and take a cross entropy of all logits.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.dtypes import BOOL, FP32, INT64
from vramwise.ghost.ops.elementwise import mul, scale, to_float, without_node
from vramwise.ghost.ops.loss import log_softmax
from vramwise.ghost.ops.shape import contiguous, narrow, view
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
    """Logits of all tokens but the last, labels of all but the first, and which of them count."""
    batch, tokens, vocabulary = logits.shape
    left = max(tokens - 1, 1)
    kept = contiguous(t, narrow(t, logits, (batch, left, vocabulary)))
    targets = t.new((batch, left), INT64)
    count = batch * left
    return view(t, kept, (count, vocabulary)), targets, t.new((count,), BOOL)


def _filled_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Zeros of the input's shape, into which the gradient is written."""
    return (t.new(node.extra, FP32),)


def _picked(t: Tape, rows: Tensor) -> Tensor:
    """`rows[mask]`: a copy; the numbers of the rows are kept."""
    numbers = t.new((rows.shape[0], 1), INT64)
    out = t.new(rows.shape, rows.dtype)
    if t.grad_enabled and rows.node is not None:
        out.node = t.node(_filled_backward, (rows,), (numbers,))
        out.node.extra = rows.shape
    return out


def _of_each_row(t: Tape, rows: Tensor, index: Tensor) -> Tensor:
    """One number a row, by index."""
    out = t.new((rows.shape[0],), rows.dtype)
    if t.grad_enabled and rows.node is not None:
        out.node = t.node(_filled_backward, (rows,), (index,))
        out.node.extra = rows.shape
    return out


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


def _mean_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(node.extra, FP32),)


def _mean(t: Tape, per_token: Tensor) -> Tensor:
    """The sum over tokens, divided by how many count."""
    total = t.new((), FP32)
    if t.grad_enabled and per_token.node is not None:
        total.node = t.node(_mean_backward, (per_token,), ())
        total.node.extra = per_token.shape
    return scale(t, total)


WEIGHTED: dict[str, WeightedLoss] = {
    "dft": probability_weighted,
    "eaft": entropy_weighted,
    "dft_whole": probability_weighted_whole,
    "eaft_whole": entropy_weighted_whole,
}
