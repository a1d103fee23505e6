"""Gemma 3n: several streams of hidden states (AltUp), of which one goes through attention and MLP, and LAuReL.

As `modeling_gemma3n.py` of transformers 5.23 has it. Streams are brought to the embeddings' magnitude in fp32 under
autocast, and stay in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.model.attention import AttentionLayer
from vramwise.ghost.model.block import LayerInput, Mlp, WithInputs
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.ops.elementwise import (
    add,
    cast,
    mul,
    result_activation,
    same_gradients,
    scale,
    square,
    subtract,
    to_float,
    without_node,
)
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.ops.reduce import mean_last
from vramwise.ghost.ops.shape import cloned, expanded, sliced
from vramwise.ghost.tape import Grads, Node, Parameter, Tape, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Before the blocks one projection of the embeddings a stream, after them one back."""

    apart: tuple[Projection, ...]
    together: tuple[Projection, ...]

    def spread(self, t: Tape, embeds: Tensor) -> Tensor:
        """(streams, rows, tokens, width)."""
        magnitude = _magnitude(t, embeds)
        found = [embeds, *[_brought_to(t, layer(t, embeds), magnitude) for layer in self.apart]]
        return _stacked(t, found)

    def joined(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return the mean of all streams."""
        shape = hidden.shape[1:]
        magnitude = _magnitude(t, sliced(t, hidden, shape))
        found = [sliced(t, hidden, shape)]
        found += [_brought_to(t, layer(t, sliced(t, hidden, shape)), magnitude) for layer in self.together]
        stacked = _stacked(t, found)
        del found
        return general(t, (stacked,), shape, stacked.dtype)


def _magnitude(t: Tape, x: Tensor) -> Tensor:
    """Return the root of the mean square: powers run in fp32 under autocast."""
    wide = to_float(t, x) if t.autocast is not None else x
    return result_activation(t, mean_last(t, square(t, wide)))


def _brought_to(t: Tape, x: Tensor, magnitude: Tensor) -> Tensor:
    own = _magnitude(t, x)
    product = mul(t, x, magnitude)
    return t.record(t.like(product), _ratio_backward, (product, own), (product, own))


def _ratio_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Of a quotient by a number a row: `-grad * ((x / y) / y)`, summed up for each row."""
    to_product = t.like(grad)
    quotient = t.like(grad)
    twice = t.like(grad)
    del quotient
    products = t.like(twice)
    del twice
    to_own = t.new((*grad.shape[:-1], 1), grad.dtype)
    del products
    return to_product, to_own


def _stacked(t: Tape, parts: list[Tensor]) -> Tensor:
    """Streams in one tensor, in the widest of their types."""
    widest = max((part.dtype for part in parts), key=lambda dtype: dtype.size)
    parts = [cast(t, part, widest) for part in parts]
    return general(t, parts, (len(parts), *parts[0].shape), widest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Altup:
    """Predicts all streams from all of them, and corrects them by what the block made of one."""

    norm: Norm
    router: Projection
    prediction: Projection
    correction: Projection
    output_scale: Parameter

    def predict(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return all streams, as they are expected after the block."""
        coefficients = self.prediction(t, self._modalities(t, sliced(t, hidden, hidden.shape[1:])))
        folded = cloned(t, autocast_input(t, hidden))
        found = general(t, (folded, coefficients), hidden.shape, folded.dtype, saved=(folded, coefficients))
        del folded, coefficients
        found = cloned(t, _added_to_view(t, found, hidden, hidden.shape))
        return cast(t, found, hidden.dtype)

    def correct(self, t: Tape, predictions: Tensor, activated: Tensor) -> Tensor:
        """Return the predictions, with the difference to what became of one of them added to all."""
        modalities = self._modalities(t, activated)
        innovation = subtract(t, activated, sliced(t, predictions, activated.shape))
        innovation = general(t, (innovation,), predictions.shape, innovation.dtype)
        coefficients = self.correction(t, modalities)
        wide = expanded(t, coefficients, (predictions.shape[0], *predictions.shape[1:3], 1))
        return _added(t, mul(t, innovation, wide), predictions)

    def scaled(self, t: Tape, corrected: Tensor) -> Tensor:
        """Return the first stream, copied and scaled in the weights' type."""
        first = cloned(t, sliced(t, corrected, corrected.shape[1:]))
        return cast(t, mul(t, cast(t, first, self.output_scale.dtype), self.output_scale), corrected.dtype)

    def _modalities(self, t: Tape, x: Tensor) -> Tensor:
        routed = self.router(t, scale(t, self.norm(t, x)))
        return cast(t, result_activation(t, to_float(t, routed)), x.dtype)


def _added(t: Tape, x: Tensor, y: Tensor) -> Tensor:
    """`x += y`."""
    return t.record(without_node(x), same_gradients, (x, y))


def _added_to_view(t: Tape, x: Tensor, y: Tensor, part: tuple[int, ...]) -> Tensor:
    """`view += y`, with a view of x: backward copies the gradient of all of x, and that of the view."""
    return t.record(without_node(x), _view_backward, (x, y), (), (part, y.shape, y.dtype))


def _view_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    part, shape, dtype = node.extra
    whole = t.like(grad)
    piece = t.new(part, grad.dtype)
    return whole, piece if (part, grad.dtype) == (shape, dtype) else t.new(shape, dtype)


@dataclass(frozen=True, slots=True)
class SparseGate:
    """A projection of which only the largest results stay: what lies below a cut by mean and deviation becomes 0."""

    inner: Projection

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        made = self.inner(t, x)
        return general(t, (made,), made.shape, made.dtype, saved=(made,), scratch=(made.numel * made.dtype.size,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Laurel:
    """A low-rank residual."""

    left: Projection
    right: Projection
    norm: Norm

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """x and its low-rank copy."""
        return add(t, x, self.norm(t, self.right(t, self.left(t, x))))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsBlock:
    """Predict, attention beside LAuReL, MLP, correct, the layer's own input."""

    label: str
    attention: AttentionLayer
    mlp: Mlp
    norm1: Norm
    norm2: Norm
    norm3: Norm
    norm4: Norm
    altup: Altup
    laurel: Laurel
    input: LayerInput

    def __call__(self, t: Tape, hidden: Tensor, *, tables: WithInputs, mask: Tensor | None) -> Tensor:
        """Return the hidden states after the block."""
        t.mark("activations", f"{self.label}: attention")
        predictions = self.altup.predict(t, hidden)
        active = sliced(t, predictions, predictions.shape[1:])
        normed = self.norm1(t, active)
        beside = self.laurel(t, normed)
        attended, _weights = self.attention(t, normed, tables.rotary, mask)
        attended = self.norm2(t, attended)
        gated = add(t, active, attended)
        mixed = scale(t, add(t, gated, beside))
        t.mark("activations", f"{self.label}: mlp")
        before = self.norm3(t, mixed)
        fed = self.mlp(t, before)
        fed_normed = self.norm4(t, fed)
        activated = add(t, mixed, fed_normed)
        corrected = self.altup.correct(t, predictions, activated)
        assert tables.own is not None
        first = self.input(t, self.altup.scaled(t, corrected), tables.own)
        rest = (corrected.shape[0] - 1, *corrected.shape[1:])
        return _added_to_view(t, corrected, first, rest)
