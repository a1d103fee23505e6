"""Gradient clipping: the norms of all gradients at once (`torch._foreach_norm`), their norm, and the factor."""

from __future__ import annotations

from vramwise.ghost.dtypes import DType
from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor
from vramwise.ghost.work_optimizers import list_clipping

# elements per block of a multi-tensor kernel
_CHUNK = 65536


def clip_grad_norm(t: Tape, parameters: list[Parameter]) -> Tensor | None:
    """`clip_grad_norm_`: returns the total norm, which the trainer keeps until the next step."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not grads:
        return None
    by_dtype: dict[DType, list[Tensor]] = {}
    for grad in grads:
        by_dtype.setdefault(grad.dtype, []).append(grad)
    norms: list[Tensor] = []
    # half precision first: the order in which torch's grouping by type yields them
    for dtype, group in sorted(by_dtype.items(), key=lambda item: item[0].size):
        chunks = max([-(-grad.numel // _CHUNK) for grad in group])
        partial = Storage(t, len(group) * chunks * 4)
        norms += [t.new((), dtype) for _ in group]
        if t.work is not None:
            t.work.no_kernel(*norms)
        del partial
    widest = max([norm.dtype for norm in norms], key=lambda dtype: dtype.size)
    stacked = t.new((len(norms),), widest)
    total = t.new((), widest)
    del stacked
    while norms:
        norms.pop()
    if t.work is not None:
        list_clipping(t.work, parameters)
    with_epsilon = t.like(total)
    inverse = t.like(total)
    factor = t.like(total)
    del inverse
    del with_epsilon
    clamped = t.like(total)
    del factor
    del clamped
    return total
