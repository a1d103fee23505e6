"""Layers that Liger puts in place of transformers' own: same shapes, fewer tensors."""

from __future__ import annotations

from vramwise.ghost.model.linear import Linear, Projection
from vramwise.ghost.ops.liger import gated_activation, rms_norm
from vramwise.ghost.ops.shape import chunk_last, contiguous
from vramwise.ghost.tape import Parameter, Tape, Tensor


class LigerNorm:
    """RMS norm as one kernel. Gemma 2 and 3 need the incoming gradient afterwards, so theirs is not in place."""

    __slots__ = ("in_place", "weight")

    def __init__(self, weight: Parameter, *, in_place: bool) -> None:
        self.weight = weight
        self.in_place = in_place

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return rms_norm(t, x, self.weight, in_place=self.in_place)

    def over_heads(self, t: Tape, x: Tensor) -> Tensor:
        """Of heads that lie in the order of tokens: the kernel takes what is contiguous, so they are copied first."""
        if x.shape[1] == 1 or x.heads_first:
            return self(t, x)
        x = contiguous(t, x)
        x.heads_first = True
        return self(t, x)


class LigerGatedMlp:
    """down(kernel(gate(x), up(x)))"""

    __slots__ = ("down", "gate", "up")

    def __init__(self, gate: Projection, up: Projection, down: Projection) -> None:
        self.gate = gate
        self.up = up
        self.down = down

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.down(t, gated_activation(t, self.gate(t, x), self.up(t, x)))


class LigerFusedGatedMlp:
    """phi-3's feed-forward with Liger's kernel: the halves of the fused projection are copied out for it."""

    __slots__ = ("down", "gate_up")

    def __init__(self, gate_up: Projection, down: Projection) -> None:
        self.gate_up = gate_up
        self.down = down

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        up = self.gate_up(t, x)
        gate, up = chunk_last(t, up)
        return self.down(t, gated_activation(t, gate, up, copies=True))


def plain_weight(head: Projection) -> Parameter | None:
    """Return the weight of a head without adapter or bias: what a fused loss can take."""
    return head.weight if isinstance(head, Linear) and head.bias is None else None


def head_weight(head: Projection) -> Parameter | None:
    """The weight of a head without adapter. TRL's tiles add a bias to each in place: it takes no memory of its own."""
    return head.weight if isinstance(head, Linear) else None
