"""A trainer's own Triton kernels for parts of a block: rotary embeddings, and norms of heads fused with them.

Follows Unsloth's `kernels/rope_embedding.py` and `kernels/qk_norm_rope.py` (2026.10.9). Tables of cosines and sines for
every position of the model are created in the first forward pass and kept.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.ops.elementwise import all_gradients, without_node
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

_TABLES = ("rotary cosines", "rotary sines")
# Tables are computed in fp32, this many positions at a time.
_ROWS = 32_768


# Initial positions of tables if batches do not name theirs.
FIRST_POSITIONS = 32_768


def tables_of_layers(t: Tape, layers: int, positions: int, width: int, dtype: DType) -> None:
    """Allocate a table pair per layer, computed on the host; counted as one pair."""
    before = t.mark("workspace", "rotary tables of each layer")
    for name in _TABLES:
        t.once[name] = Storage(t, layers * min(positions, FIRST_POSITIONS) * width * dtype.size)
    t.tag = before


def kept_tables(t: Tape, positions: int, width: int, dtype: DType) -> None:
    """Allocate both tables; those with few positions are computed on the host."""
    if _TABLES[0] in t.once:
        return
    before = t.mark("workspace", "rotary tables")
    if positions > _ROWS:
        rows = min(positions, _ROWS)
        angles = t.new((rows, width), FP32)
        turned = t.new((rows, width), FP32)
        for name in _TABLES:
            t.once[name] = Storage(t, positions * width * dtype.size)
        del turned, angles
    else:
        for name in _TABLES:
            t.once[name] = Storage(t, positions * width * dtype.size)
    t.tag = before


def _turned_backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    """Return new gradients, heads first: they are copied when they become rows of tokens again."""
    parts = all_gradients(grads, 2)
    made = []
    for part in parts:
        out = None if part is None else t.new(part.shape, part.dtype)
        if out is not None:
            out.heads_first = True
        made.append(out)
    _one_kernel(t, made)
    return tuple(made)


def turn_by_position(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys into new tensors of the same memory order; nothing is saved."""
    turned = t.like(q), t.like(k)
    _one_kernel(t, list(turned))
    t.record_all(turned, _turned_backward, (q, k))
    return turned


def _normed_backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    parts = all_gradients(grads, 2)
    made = [None if part is None else t.new(part.shape, part.dtype) for part in parts]
    _one_kernel(t, made)
    return tuple(made)


def norm_and_turn(t: Tape, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Norms of heads and their rotation in one kernel, which saves its inputs and one number per head."""
    turned = t.like(q), t.like(k)
    scales = [t.new(x.shape[:3], FP32) for x in (q, k)]
    _one_kernel(t, [*turned, *scales])
    t.record_all(turned, _normed_backward, (q, k), (without_node(q), without_node(k), *scales))
    del scales
    return turned


def _one_kernel(t: Tape, made: list[Tensor | None]) -> None:
    if t.work is not None:
        t.work.function()
        read = sum([one.numel * one.dtype.size for one in made if one is not None])
        t.work.fused(tuple(made), "triton", read=read)
