"""Decoder blocks: in which order norms, attention, feed-forward and residuals come.

Attention weights are kept in a local until the block ends: the models do so (`hidden, _ = attention(…)`). Layers of
Gemma 3n and 4 have inputs of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from vramwise.ghost.model.attention import AttentionLayer, Tables
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm, unchanged
from vramwise.ghost.ops.elementwise import activation, add, add_in_place, dropout, mul, scale, scale_in_place
from vramwise.ghost.ops.loss import embedding
from vramwise.ghost.ops.shape import view
from vramwise.ghost.tape import Parameter, Tape, Tensor
from vramwise.models.families.base import ParallelOrder

Mlp = Callable[[Tape, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreNormBlock:
    """Norm, attention, add; norm, feed-forward, add. Granite scales what it adds.

    Gemma 2 and 3 and GLM 4 also have norms after both parts: `after1`, `after2`.
    """

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    after1: Norm = unchanged
    norm2: Norm
    after2: Norm = unchanged
    scaled: bool = False
    # of what attention and feed-forward return
    dropout: float = 0.0

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        residual = hidden
        t.mark("activations", f"{self.label}: attention")
        hidden = self.norm1(t, hidden)
        hidden, _weights = self.attention(t, hidden, tables, mask)
        hidden = dropout(t, self.after1(t, hidden), self.dropout)
        hidden = add(t, residual, scale(t, hidden) if self.scaled else hidden)
        residual = hidden
        t.mark("activations", f"{self.label}: mlp")
        hidden = self.norm2(t, hidden)
        hidden = self.mlp(t, hidden)
        hidden = dropout(t, self.after2(t, hidden), self.dropout)
        hidden = add(t, residual, scale(t, hidden) if self.scaled else hidden)
        return hidden  # noqa: RET504


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingBlock:
    """Falcon without parallel attention: as above, but each result has a name of its own until the block ends."""

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    norm2: Norm
    attention_dropout: float = 0.0
    dropout: float = 0.0

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        t.mark("activations", f"{self.label}: attention")
        normed = self.norm1(t, hidden)
        attended, _weights = self.attention(t, normed, tables, mask)
        residual = add(t, hidden, dropout(t, attended, self.attention_dropout))
        t.mark("activations", f"{self.label}: mlp")
        beside = self.norm2(t, residual)
        fed = self.mlp(t, beside)
        return add(t, residual, dropout(t, fed, self.dropout))


@dataclass(frozen=True, slots=True, kw_only=True)
class PostNormBlock:
    """Norms after attention and feed-forward only: OLMo 2 and 3."""

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    norm2: Norm

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        residual = hidden
        t.mark("activations", f"{self.label}: attention")
        hidden, _weights = self.attention(t, hidden, tables, mask)
        hidden = self.norm1(t, hidden)
        hidden = add(t, residual, hidden)
        residual = hidden
        t.mark("activations", f"{self.label}: mlp")
        hidden = self.mlp(t, hidden)
        hidden = self.norm2(t, hidden)
        hidden = add(t, residual, hidden)
        return hidden  # noqa: RET504


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelBlock:
    """Attention and feed-forward of the same input, one residual: phi, Cohere, Falcon."""

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    norm2: Norm | None
    # in which order the three are added: phi, Falcon and Cohere differ
    order: ParallelOrder = "attention, mlp"
    dropout: float = 0.0

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        residual = hidden
        t.mark("activations", f"{self.label}: attention")
        hidden = self.norm1(t, hidden)
        beside = hidden if self.norm2 is None else self.norm2(t, residual)
        attended, _weights = self.attention(t, hidden, tables, mask)
        if self.order == "attention, mlp":
            attended = dropout(t, attended, self.dropout)
        t.mark("activations", f"{self.label}: mlp")
        fed = self.mlp(t, beside)
        if self.order == "residual, (mlp, attention)":
            # in place: the feed-forward's output becomes the sum
            fed = add_in_place(t, fed, attended)
            return add(t, residual, dropout(t, fed, self.dropout))
        fed = dropout(t, fed, self.dropout)
        if self.order == "residual, attention":
            return add(t, add(t, residual, attended), fed)
        return add(t, add(t, attended, fed), residual)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeoxBlock:
    """Two norms of the same input, both made where they are used; one residual."""

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    norm2: Norm
    dropout: float = 0.0

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        t.mark("activations", f"{self.label}: attention")
        attended, _weights = self.attention(t, self.norm1(t, hidden), tables, mask)
        attended = dropout(t, attended, self.dropout)
        t.mark("activations", f"{self.label}: mlp")
        fed = self.mlp(t, self.norm2(t, hidden))
        fed = dropout(t, fed, self.dropout)
        hidden = add(t, add(t, fed, attended), hidden)
        return hidden  # noqa: RET504


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePart:
    """A norm, attention or a feed-forward layer, a residual: Nemotron-H."""

    label: str
    norm: Norm
    attention: AttentionLayer | None = None
    mlp: Mlp | None = None

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        residual = hidden
        t.mark("activations", f"{self.label}: {'mlp' if self.attention is None else 'attention'}")
        hidden = self.norm(t, hidden)
        if self.attention is not None:
            hidden, _weights = self.attention(t, hidden, tables, mask)
        elif self.mlp is not None:
            hidden = self.mlp(t, hidden)
        hidden = add(t, residual, hidden)
        return hidden  # noqa: RET504


def passed_on(t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
    """Return a block that does nothing here: cross attention where there is no image."""
    return hidden


class WithInputs(NamedTuple):
    """The tables of a layer, the inputs of all layers, and this layer's own, once it is cut out of them."""

    rotary: Tables | None
    every: Tensor
    own: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInputs:
    """Makes the inputs of all layers: rows of a table, and the embeddings' projection."""

    table: Parameter
    projection: Projection
    norm: Norm
    layers: int
    scaled_in_place: bool  # Gemma 3n

    def __call__(self, t: Tape, ids: Tensor, embeds: Tensor) -> Tensor:
        """(rows, tokens, layers, width)."""
        shape = (*ids.shape, self.layers, self.table.shape[1] // self.layers)
        found = view(t, scale(t, embedding(t, self.table, ids)), shape)
        context = self.projection(t, embeds)
        context = scale_in_place(t, context) if self.scaled_in_place else scale(t, context)
        context = self.norm(t, view(t, context, shape))
        return scale(t, add(t, context, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInput:
    """What a layer does with its own: a gate of hidden states times it, projected and normed."""

    gate: Projection
    projection: Projection
    norm: Norm

    def __call__(self, t: Tape, hidden: Tensor, own: Tensor) -> Tensor:
        """Return what is added to hidden states."""
        gated = mul(t, activation(t, self.gate(t, hidden)), own)
        return self.norm(t, self.projection(t, gated))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledSandwichBlock:
    """Norms before and after both parts, the layer's own input where it has one; the result is scaled in place."""

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    norm2: Norm
    norm3: Norm
    norm4: Norm
    input: LayerInput | None

    def __call__(self, t: Tape, hidden: Tensor, *, tables: WithInputs | Tables | None, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        residual = hidden
        t.mark("activations", f"{self.label}: attention")
        rotary = tables.rotary if isinstance(tables, WithInputs) else tables
        hidden = self.norm1(t, hidden)
        hidden, _weights = self.attention(t, hidden, rotary, mask)
        hidden = self.norm2(t, hidden)
        hidden = add(t, residual, hidden)
        residual = hidden
        t.mark("activations", f"{self.label}: mlp")
        hidden = self.norm3(t, hidden)
        hidden = self.mlp(t, hidden)
        hidden = self.norm4(t, hidden)
        hidden = add(t, residual, hidden)
        if self.input is not None and isinstance(tables, WithInputs) and tables.own is not None:
            residual = hidden
            hidden = self.input(t, hidden, tables.own)
            hidden = add(t, residual, hidden)
        return scale_in_place(t, hidden)
