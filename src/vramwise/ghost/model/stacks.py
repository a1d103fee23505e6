"""Encoders, and decoders that attend to one: BERT, T5, BART, Whisper.

A block is a row of parts, each with a residual. Its norms run before the parts, or after the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from vramwise.ghost.model.attention import Attention, Heads
from vramwise.ghost.model.kernels import Attended, tokens_first
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.mlp import Activation
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.ops.attention import fused_attention
from vramwise.ghost.ops.elementwise import add, add_in_place, cast, dropout, mul, scale
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.matmul import batched
from vramwise.ghost.ops.row_kernels import softmax
from vramwise.ghost.ops.shape import contiguous, expanded, transpose_last, view
from vramwise.ghost.tape import Tape, Tensor


class Beside(NamedTuple):
    """What a block gets besides its hidden states: the encoder's result, and what is added to scores, for both."""

    memory: Tensor | None = None
    memory_mask: Tensor | None = None
    bias: Tensor | None = None
    memory_bias: Tensor | None = None
    distances: Tensor | None = None  # DeBERTa's table


Part = Callable[[Tape, Tensor, Any, "Tensor | None"], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsBlock:
    """Attention, attention to the encoder if there is one, and an MLP."""

    label: str
    parts: tuple[Part, ...]
    norms: tuple[Norm, ...]
    joined: bool  # norms run after the sums
    dropout: float

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Any, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        for number, (part, norm) in enumerate(zip(self.parts, self.norms, strict=True), 1):
            t.mark("activations", f"{self.label}: {'mlp' if number == len(self.parts) else 'attention'}")
            residual = hidden
            if not self.joined:
                hidden = norm(t, hidden)
            hidden = part(t, hidden, tables, mask)
            hidden = add(t, residual, dropout(t, hidden, self.dropout))
            del residual
            if self.joined:
                hidden = norm(t, hidden)
        return hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """The MLP as a part of a block."""

    mlp: Callable[[Tape, Tensor], Tensor]

    def __call__(self, t: Tape, hidden: Tensor, tables: Any, mask: Tensor | None) -> Tensor:
        """Return the layer's output."""
        return self.mlp(t, hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfPart:
    """A layer of attention like any decoder's, as a part of a block."""

    attention: Any

    def __call__(self, t: Tape, hidden: Tensor, tables: Any, mask: Tensor | None) -> Tensor:
        """Return the output, and the attention weights where the kernel makes them."""
        output, _weights = self.attention(t, hidden, tables, mask)
        assert isinstance(output, Tensor)
        return output


@dataclass(frozen=True, slots=True, kw_only=True)
class StackAttention:
    """Attention of a row to itself or, `across`, to the encoder's result; T5 adds a number for each distance."""

    heads: Heads
    q: Projection
    k: Projection
    v: Projection
    o: Projection
    across: bool = False
    copies: bool = False  # Whisper scales queries itself, and copies all three
    written_out: bool = False
    scaled: bool = True  # scores, where attention is written out
    rate: float = 0.0

    def __call__(self, t: Tape, hidden: Tensor, tables: Beside, mask: Tensor | None) -> Tensor:
        """Return the output, and the attention weights where the kernel makes them."""
        source = tables.memory if self.across else hidden
        bias = tables.memory_bias if self.across else tables.bias
        mask = tables.memory_mask if self.across else mask
        assert source is not None
        made = self.q(t, hidden)
        query = self._split(t, scale(t, made) if self.copies else made)
        del made
        key, value = self._split(t, self.k(t, source)), self._split(t, self.v(t, source))
        if self.written_out:
            output = self._written_out(t, query, key, value, mask, bias)
        else:
            joined = mask if bias is None else self._joined(t, bias, mask, query.shape[0])
            output = fused_attention(t, query, key, value, joined)
            del joined
        output = tokens_first(t, output)
        return self.o(t, output)

    def _joined(self, t: Tape, bias: Tensor, mask: Tensor | None, rows: int) -> Tensor:
        """Return one mask of numbers, made by each layer anew: the bias where tokens attend, a low number elsewhere."""
        if mask is None:
            return bias if self.across else contiguous(t, bias)
        shape = (rows, *bias.shape[1:])
        return mul(t, bias if bias.shape == shape else expanded(t, bias, shape), t.new((), bias.dtype))

    def _split(self, t: Tape, x: Tensor) -> Tensor:
        split = view(t, x, (x.shape[0], self.heads.query, x.shape[1], self.heads.width))
        if not self.copies:
            return split
        copied = contiguous(t, split)
        copied.heads_first = True
        return copied

    def _written_out(
        self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        weights = batched(t, query, transpose_last(t, key))
        if self.scaled:
            weights = scale(t, weights)
        if bias is not None:
            weights = add_in_place(t, weights, bias)
        elif mask is not None:
            weights = add(t, weights, mask)
        weights = cast(t, softmax(t, weights), query.dtype)
        weights = dropout(t, weights, self.rate)
        return batched(t, weights, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disentangled:
    """DeBERTa 2: scores of contents, of contents against distances, and of distances against contents."""

    attention: Attention
    rate: float
    hidden_rate: float

    def __call__(self, t: Tape, hidden: Tensor, tables: Any, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        made = self.attention
        query, key, value = [self._split(t, one(t, hidden)) for one in (made.q, made.k, made.v)]
        scores = batched(t, query, scale(t, transpose_last(t, key)))
        if tables.distances is not None:
            scores = add(t, scores, self._against_distances(t, query, key, tables.distances))
        filled = mul(t, scores, t.new((), scores.dtype)) if mask is None else add(t, scores, mask)
        del scores
        weights = dropout(t, softmax(t, filled, filled.dtype), self.rate)
        del filled
        output = tokens_first(t, batched(t, weights, value))
        return made.o(t, output), None

    def _against_distances(self, t: Tape, query: Tensor, key: Tensor, table: Tensor) -> Tensor:
        made, rows, tokens = self.attention, query.shape[0], query.shape[2]
        table = dropout(t, table, self.hidden_rate)
        distances = view(t, table, (1, *table.shape))
        queries = self._repeated(t, self._split(t, made.q(t, distances)), rows)
        keys = self._repeated(t, self._split(t, made.k(t, distances)), rows)
        shape = (rows, self.attention.heads.query, tokens, tokens)
        score = scale(t, _gathered(t, batched(t, query, transpose_last(t, keys)), shape))
        other = scale(t, _gathered(t, batched(t, key, transpose_last(t, queries)), shape))
        return add_in_place(t, score, other)

    def _split(self, t: Tape, x: Tensor) -> Tensor:
        heads = self.attention.heads
        return contiguous(t, view(t, x, (x.shape[0], heads.query, x.shape[1], heads.width)))

    def _repeated(self, t: Tape, x: Tensor, rows: int) -> Tensor:
        return contiguous(t, expanded(t, x, (rows, *x.shape[1:])))


def _gathered(t: Tape, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x.gather(-1, index)`: saves all that it chooses from."""
    return general(t, (x,), shape, x.dtype, saved=(x,))


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedInside:
    """T5's MLP: dropout between its products. Its result is put into the last weight's type, which autocast undoes."""

    up: Projection
    down: Projection
    act: Activation
    gate: Projection | None
    rate: float

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        first = self.up if self.gate is None else self.gate
        inner = self.act(t, first(t, x))
        if self.gate is not None:
            inner = mul(t, inner, self.up(t, x))
        inner = dropout(t, inner, self.rate)
        return self.down(t, cast(t, inner, x.dtype))
