"""An op defined by its result, what it saves, and what its backward allocates besides the gradients.

For kernels whose internals are unknown, and for chains of small ops summarized as one: state-space scans, delta rules,
short convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.ghost.dtypes import DType
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

Wanted = tuple[tuple[int, ...], DType]


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    inputs, scratch = node.extra
    held = [Storage(t, nbytes) for nbytes in scratch if nbytes]
    found = [None if edge is None else t.new(*item) for edge, item in zip(node.edges, inputs, strict=True)]
    del held
    return tuple(found)


def general(
    t: Tape,
    inputs: Sequence[Tensor],
    shape: tuple[int, ...],
    dtype: DType,
    *,
    saved: Sequence[Tensor] = (),
    made: Sequence[Wanted] = (),
    scratch: Sequence[int] = (),
) -> Tensor:
    """Return the op's result.

    `made`: tensors that it creates and saves; `scratch`: bytes that only its backward needs.
    """
    own = [t.new(*item) for item in made]
    out = t.new(shape, dtype)
    t.record(
        out,
        _backward,
        tuple(inputs),
        (*saved, *own),
        (tuple([(item.shape, item.dtype) for item in inputs]), tuple(scratch)),
    )
    del own
    return out
