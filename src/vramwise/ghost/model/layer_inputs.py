"""Inputs of their own for layers (Gemma 3n and 4), and the blocks that take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vramwise.ghost.model.attention import AttentionLayer, Tables
from vramwise.ghost.model.block import Mlp
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.ops.elementwise import activation, add, mul, scale, scale_in_place
from vramwise.ghost.ops.loss import embedding
from vramwise.ghost.ops.shape import view
from vramwise.ghost.tape import Parameter, Tape, Tensor


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
        """What is added to hidden states."""
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
        """Run it."""
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
