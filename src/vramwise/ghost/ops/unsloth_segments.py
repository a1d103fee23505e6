"""Attention over a flattened row with one `scaled_dot_product_attention` call per sample; results are joined.

Follows Unsloth's `utils/attention_dispatch.py` (2026.10.9), which does this if torch has no variable-length kernel for
grouped heads (before 2.12). If cuDNN's kernel is used, queries, keys and values are copied and padded to a multiple of
128, by a full 128 if already a multiple; samples are assumed to be equal, with half of that added.
"""

from __future__ import annotations

from vramwise.ghost.ops.attention import fused_attention, kernel_of
from vramwise.ghost.ops.shape import narrow
from vramwise.ghost.tape import Grads, Node, Tape, Tensor

_MULTIPLE = 128


def attention_by_sample(t: Tape, q: Tensor, k: Tensor, v: Tensor, samples: int) -> Tensor:
    """Return the result of all samples, in token order."""
    batch, heads, tokens, width = q.shape
    each, over = divmod(tokens, samples)
    padded = kernel_of(t.hardware, q, k, masked=False) == "cudnn"
    added = 0 if not padded else _MULTIPLE if each % _MULTIPLE == 0 and not over else _MULTIPLE // 2
    parts = []
    for number in range(samples):
        length = each + (over if number == samples - 1 else 0)
        taken = [_taken(t, x, length, added) for x in (q, k, v)]
        out = fused_attention(t, taken[0], taken[1], taken[2])
        del taken
        parts.append(narrow(t, out, (batch, heads, length, width)))
        del out
    return _joined(t, parts, q.shape)


def attention_of_rows(t: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the same for rows of equal width: one call, with the same padding for all."""
    if kernel_of(t.hardware, q, k, masked=False) != "cudnn":
        return fused_attention(t, q, k, v)
    added = _MULTIPLE - q.shape[2] % _MULTIPLE
    wider = [_padded(t, x, added) for x in (q, k, v)]
    out = fused_attention(t, wider[0], wider[1], wider[2])
    del wider
    return narrow(t, out, q.shape)


def _padded(t: Tape, x: Tensor, added: int) -> Tensor:
    """Return a copy with added rows. Its gradient is cut out, as a copy."""
    batch, heads, tokens, width = x.shape
    out = t.new((batch, heads, tokens + added, width), x.dtype)
    _filled_first(t, out, x.numel)
    out.heads_first = True
    return t.record(out, _padded_backward, (x,), (), x.shape)


def _padded_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.new(node.extra, grad.dtype)
    out.heads_first = True
    return (out,)


def _taken(t: Tape, x: Tensor, length: int, added: int) -> Tensor:
    """Return a sample's part of all tokens: a view, or a copy with added rows.

    Its gradient is written into zeros of the full size.
    """
    batch, heads, _, width = x.shape
    shape = (batch, heads, length + added, width)
    if added:
        out = t.new(shape, x.dtype)
        _filled_first(t, out, batch * heads * length * width)
        out.heads_first = True
    else:
        out = Tensor(x.storage, shape, batch * heads * length * width, x.dtype)
        out.view = True
    return t.record(out, _taken_backward, (x,), (), (x.shape, length, added))


def _taken_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    (batch, heads, tokens, width), length, added = node.extra
    cut = t.new((batch, heads, length, width), grad.dtype) if added else None
    sliced = t.new((heads, tokens, width), grad.dtype)
    _filled_first(t, sliced, heads * length * width)
    del cut
    out = t.new((batch, heads, tokens, width), grad.dtype)
    _filled_first(t, out, heads * tokens * width)
    out.heads_first = True
    del sliced
    return (out,)


def _filled_first(t: Tape, out: Tensor, elements: int) -> None:
    """Count that `out` is filled with zeros before `elements` are copied into it: two kernels and an autograd op."""
    if t.work is None:
        return
    copied = t.work.of(out)
    if copied is not None:
        copied.read = copied.written = elements * out.dtype.size
        copied.family = "strided"
    t.work.stream(0, out.numel * out.dtype.size)
    t.work.op()


def _joined(t: Tape, parts: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    return t.record(t.new(shape, parts[0].dtype), _joined_backward, tuple(parts), (), [part.shape for part in parts])


def _joined_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    found = []
    for shape in node.extra:
        part = Tensor(grad.storage, shape, shape[0] * shape[1] * shape[2] * shape[3], grad.dtype)
        part.view = True
        found.append(part)
    return tuple(found)
