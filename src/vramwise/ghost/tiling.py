"""Tiled feed-forward layers: the layer runs over pieces of the sequence, and once more, piece by piece, in backward.

After Arctic's long-sequence training as trainers ship it: an autograd function that keeps its input alone. In backward
the gradients of the layer's own weights are added up in buffers of their own, one for each weight that is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.ghost.engine import backward
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.tape import Grads, Leaf, Node, Parameter, Tape, Tensor

Mlp = Callable[[Tape, Tensor], Tensor]

# tokens that a piece has at most where nobody says how many pieces there are
_PIECE = 32768


@dataclass(frozen=True, slots=True)
class TiledMlp:
    """A feed-forward layer in pieces; `trained` are its weights that get gradients."""

    mlp: Mlp
    pieces: int | None
    trained: tuple[Parameter, ...]

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it: nothing of a piece is kept, and the results are joined into one more tensor."""
        records = t.grad_enabled and x.node is not None
        outer, t.grad_enabled = t.grad_enabled, False
        outs = [self.mlp(t, piece) for piece in self.cut(x)]
        t.grad_enabled = outer
        out = t.new(x.shape, outs[0].dtype)
        del outs
        if records:
            out.node = t.node(_tiled_backward, (x,), (without_node(x),))
            out.node.extra = self
        return out

    def cut(self, x: Tensor) -> list[Leaf]:
        """`torch.chunk` along the tokens: views."""
        rows, tokens, width = x.shape
        size = -(-tokens // (self.pieces or -(-tokens // _PIECE)))
        found = []
        for start in range(0, tokens, size):
            count = min(size, tokens - start)
            piece = Leaf(x.storage, (rows, count, width), rows * count * width, x.dtype)
            piece.view = True
            found.append(piece)
        return found


def _tiled_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Locals as in the real function: the last piece's result and the last weight's gradient live on into the next."""
    layer: TiledMlp = node.extra
    x = node.saved[0]
    to_x = t.like(x)
    # a rank that keeps a share of its gradients has no buffers for them
    trained = [parameter for parameter in layer.trained if parameter.local == parameter.numel]
    before = [parameter.grad for parameter in trained]
    sums = [t.like(parameter) for parameter in trained]
    for parameter in trained:
        parameter.grad = None
    output: Tensor | None = None
    part: Tensor | None = None
    for piece in layer.cut(x):
        output = _again(t, layer.mlp, piece, to_x)
        assert output.node is not None
        backward(t, output.node, _beside(piece, grad))
        for parameter in trained:
            part, parameter.grad = parameter.grad, None
    # added to an earlier gradient in a new tensor; that the old one stays instead is the same memory
    added = [t.like(earlier) for earlier in before if earlier is not None]
    for parameter, earlier, total in zip(trained, before, sums, strict=True):
        parameter.grad = earlier or total
        if earlier is None and total.storage is not None:
            t.retag(total.storage, "gradients", parameter.name)
    del output, part, added
    return (to_x,)


def _again(t: Tape, mlp: Mlp, piece: Leaf, to_x: Tensor) -> Tensor:
    """Return piece again, with a graph, outside of autocast; its input's gradient is added to a part of the whole."""
    piece.require_grad()
    piece.grad = without_node(to_x)
    t.grad_enabled = True
    out = mlp(t, piece)
    t.grad_enabled = False
    return out


def _beside(piece: Tensor, grad: Tensor) -> Tensor:
    """Return the piece's part of the incoming gradient."""
    part = Tensor(grad.storage, piece.shape, piece.numel, grad.dtype)
    part.view = True
    return part
