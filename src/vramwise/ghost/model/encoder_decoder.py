"""An encoder and a decoder that attends to its result: T5, BART, Whisper.

Blocks of both are in one list, the encoder's first. The encoder's result goes into every block of the decoder, and a
checkpoint keeps it with the block's input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.ghost.dtypes import INT64
from vramwise.ghost.model.causal_lm import Body, wanting_grad
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.model.stacks import Beside
from vramwise.ghost.ops.elementwise import activation, add, dropout
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.loss import embedding
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.ops.shape import view
from vramwise.ghost.tape import Parameter, Tape, Tensor

# Spectra of 30 seconds: two for each position of the encoder.
_SPECTRA_EACH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Embeddings of tokens, with positions and a norm where the model has them."""

    table: Parameter
    positions: Parameter | None
    norm: Norm | None
    rate: float

    def __call__(self, t: Tape, ids: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the first block's input."""
        hidden = hook(embedding(t, self.table, ids))
        if self.positions is not None:
            numbers = t.new((1, ids.shape[1]), INT64)
            hidden = add(t, hidden, embedding(t, self.positions, numbers))
        if self.norm is not None:
            hidden = self.norm(t, hidden)
        return dropout(t, hidden, self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audio:
    """Two convolutions over spectra, the second with a stride of two, and positions."""

    convolutions: tuple[tuple[Parameter, Parameter], ...]
    positions: Parameter
    rate: float

    def __call__(self, t: Tape, ids: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the first block's input, for spectra."""
        hidden, rows, places = ids, ids.shape[0], self.positions.shape[0]
        for (weight, bias), length in zip(self.convolutions, (_SPECTRA_EACH * places, places), strict=True):
            hidden = activation(t, _convolved(t, hidden, weight, bias, length))
        hidden = view(t, hidden, (rows, places, hidden.shape[1]))
        hidden = add(t, hook(hidden), self.positions)
        return dropout(t, hidden, self.rate)


def _convolved(t: Tape, x: Tensor, weight: Parameter, bias: Parameter, length: int) -> Tensor:
    low_bias, low_weight, low_x = autocast_input(t, bias), autocast_input(t, weight), autocast_input(t, x)
    shape = (x.shape[0], weight.shape[0], length)
    return general(t, (low_x, low_weight, low_bias), shape, low_x.dtype, saved=(low_x, low_weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderDecoder(Body):
    """Both stacks. `tables`: T5's, of distances, one for each; `ends`: the last norms."""

    encoder_layers: int
    starts: tuple[Tokens | Audio, Tokens]
    ends: tuple[Norm | None, Norm | None]
    end_rate: float
    heads: int
    tables: tuple[Parameter | None, Parameter | None]

    @property
    def speech_places(self) -> tuple[int, int] | None:
        """Bins and length of the spectra of one row; None for a model of text."""
        first = self.starts[0]
        if not isinstance(first, Audio):
            return None
        return first.convolutions[0][0].shape[1], _SPECTRA_EACH * first.positions.shape[0]

    def both(self, t: Tape, ids: Tensor, attention_mask: Tensor, padded: bool, targets: Tensor) -> Tensor:
        """Return the decoder's hidden states for these targets."""
        t.mark("activations", "embeddings")
        hook = self._hook(t)
        hidden = self.starts[0](t, ids, hook)
        places = hidden.shape[1]
        mask = None
        if not isinstance(self.starts[0], Audio):
            mask = self._masks(t, attention_mask, Tensor(None, (), 0, hidden.dtype), padded).get("full")
        bias = self._bias(t, 0, places, places)
        count = self.encoder_layers
        hidden = self._stack(t, range(count), hidden, Beside(bias=bias), mask)
        memory = self._end(t, 0, hidden)
        del hidden, bias
        decoder_ids = t.new(targets.shape, INT64)
        hidden = self.starts[1](t, decoder_ids, hook)
        tokens = targets.shape[1]
        own = self._bias(t, 1, tokens, tokens)
        zeros = None if own is None else self._zeros(t, own, (1, self.heads, tokens, places))
        beside = Beside(memory=memory, memory_mask=mask, bias=own, memory_bias=zeros)
        hidden = self._stack(t, range(count, len(self.blocks)), hidden, beside, None)
        return self._end(t, 1, hidden)

    def _hook(self, t: Tape) -> Callable[[Tensor], Tensor]:
        def wants(embeds: Tensor) -> Tensor:
            if self.input_grads and t.grad_enabled and embeds.node is None:
                embeds = wanting_grad(embeds)
                t.graph_holds.append(embeds)
            return embeds

        return wants

    def _bias(self, t: Tape, stack: int, queries: int, keys: int) -> Tensor | None:
        """Return T5's numbers for all pairs of positions, by head."""
        table = self.tables[stack]
        if table is None:
            return None
        t.mark("activations", "position bias")
        looked_up = embedding(t, table, t.new((queries, keys), INT64))
        return view(t, looked_up, (1, self.heads, queries, keys))

    def _zeros(self, t: Tape, own: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return T5's numbers for pairs across stacks: in the products' type, and under checkpointing a leaf."""
        zeros = t.new(shape, t.autocast or own.dtype)
        return wanting_grad(zeros) if self.checkpoint is not None and t.training and t.grad_enabled else zeros

    def _stack(self, t: Tape, numbers: range, hidden: Tensor, beside: Beside, mask: Tensor | None) -> Tensor:
        first = [hidden]
        del hidden
        hidden = first.pop()
        for number in numbers:
            hidden = self._block(t, number, hidden, beside, mask)
        return hidden

    def _block(self, t: Tape, number: int, hidden: Tensor, beside: Beside, mask: Tensor | None) -> Tensor:
        names = [name for name in ("memory", "bias") if getattr(beside, name) is not None]

        def block(t: Tape, x: Tensor, *more: Tensor) -> Tensor:
            given = beside._replace(**dict(zip(names, more, strict=True)))
            return self.blocks[number](t, x, tables=given, mask=mask)

        inputs = [getattr(beside, name) for name in names]
        if self.checkpoint is None:
            return block(t, hidden, *inputs)
        return self.checkpoint(t, block, hidden, *inputs)

    def _end(self, t: Tape, stack: int, hidden: Tensor) -> Tensor:
        norm = self.ends[stack]
        if norm is None:
            return hidden
        t.mark("activations", "final norm")
        return dropout(t, norm(t, hidden), self.end_rate)
