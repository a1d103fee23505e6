"""Attention implementations: what stands between rotated queries and the output projection.

Each takes (batch, heads, tokens, width) queries, keys and values and a mask, and returns the output with tokens
first, and
the attention weights where the implementation has them (the caller keeps those until its block ends).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.model.mask import document_mask
from vramwise.ghost.ops.attention import fused_attention, math_attention
from vramwise.ghost.ops.elementwise import add, cast, dropout, result_activation, scale
from vramwise.ghost.ops.flash import efficient_attention, flash_attention
from vramwise.ghost.ops.matmul import batched
from vramwise.ghost.ops.row_kernels import softmax, subtract_max
from vramwise.ghost.ops.shape import (
    cat_last,
    contiguous,
    copied_heads,
    expanded,
    interleaved_heads,
    narrow,
    repeat_heads,
    rows_put_back,
    rows_taken,
    transpose_last,
    view,
)
from vramwise.ghost.ops.unsloth_segments import attention_by_sample, attention_of_rows
from vramwise.ghost.tape import Parameter, Tape, Tensor

# the output, and the attention weights where the implementation makes them
Attended = tuple[Tensor, "Tensor | None"]
Kernel = Callable[[Tape, Tensor, Tensor, Tensor, "Tensor | None"], Attended]


# the widest heads that torch's variable-length kernel takes
VARLEN_WIDEST = 256


class Sdpa:
    """`scaled_dot_product_attention`: grouped queries are left to the kernel only where there is no mask."""

    __slots__ = ()

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        groups = query.shape[1] // key.shape[1]
        if mask is not None:
            key = repeat_heads(t, key, groups)
            value = repeat_heads(t, value, groups)
        output = fused_attention(t, query, key, value, mask)
        return tokens_first(t, output), None


@dataclass(frozen=True, slots=True)
class Flash:
    """The flash-attention library: no mask, grouped queries as they are; padding is left out and put back after."""

    window: int | None = None
    _: KW_ONLY
    # samples lie one behind the other, and the kernel gets the start of each
    packed: bool = False
    packed_eval: bool = False

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        if mask is not None:
            return self._unpadded(t, query, key, value), None
        if t.work is not None and not t.work.told_samples:
            t.work.asked(4, 3)
        packed = self.packed if t.training else self.packed_eval
        sequences = (t.samples or 1) if packed else 0
        output = flash_attention(t, query, key, value, self.window, sequences=sequences, in_python=True)
        return tokens_first(t, output), None

    def _unpadded(self, t: Tape, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """transformers' `_upad_input`, the kernel over one row of real tokens, `pad_input`."""
        batch, heads, tokens, width = query.shape
        indices = t.new((t.real_tokens or batch * tokens,), INT64)
        if t.work is not None:
            t.work.asked(2, 3)  # which tokens are real, and how many the longest row has
        k = rows_taken(t, key, indices)
        v = rows_taken(t, value, indices)
        q = rows_taken(t, query, indices)
        longest = -(-indices.numel // batch)  # rows are taken to be alike
        window = min(longest, self.window or longest)
        out = flash_attention(t, q, k, v, window, sequences=batch, in_python=True)
        padded = rows_put_back(t, out, indices, (batch, tokens, heads * width))
        del q, k, v, indices, out
        return padded


@dataclass(frozen=True, slots=True, kw_only=True)
class VarlenSdpa:
    """Packed rows under sdpa by torch's variable-length kernel: no mask; grouped heads are repeated, then put in the
    order of tokens. Evaluation rows that are not packed take the ordinary way. The kernel has no fp32: queries that
    an fp32 embedding's rotation made wide take the ordinary way too, under a mask that every layer builds anew."""

    packed_eval: bool

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        if not (t.training or self.packed_eval):
            return Sdpa()(t, query, key, value, mask)
        if query.dtype is FP32:
            return Sdpa()(t, query, key, value, document_mask(t, query.shape[0], query.shape[2]))
        if t.work is not None:
            t.work.asked(4, 4)  # where samples begin, for every layer anew
        groups = query.shape[1] // key.shape[1]
        key = interleaved_heads(t, key, groups)
        value = interleaved_heads(t, value, groups)
        keys = contiguous(t, key) if key.heads_first else key
        values = contiguous(t, value) if value.heads_first else value
        output = flash_attention(t, query, keys, values, sequences=1)
        del keys, values
        return tokens_first(t, output), None


@dataclass(frozen=True, slots=True)
class RowsAttention:
    """A trainer's own choice for flattened rows. `way`: a variable-length kernel with grouped heads as they are, one
    that wants heads repeated where there will be a backward pass, or a call for each sample. Cards before Ampere have
    no flash attention: the memory-efficient kernel is taken."""

    way: str
    _: KW_ONLY
    packed: bool
    packed_eval: bool

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        packed = self.packed if t.training else self.packed_eval
        ampere = t.hardware.capability >= (8, 0)
        if packed and self.way == "segments":
            return tokens_first(t, attention_by_sample(t, query, key, value, t.samples or 1)), None
        if self.way == "segments" and ampere:
            return tokens_first(t, attention_of_rows(t, query, key, value)), None
        if self.way == "repeated" or not ampere:
            groups = query.shape[1] // key.shape[1] if t.grad_enabled else 1
            key, value = copied_heads(t, key, groups), copied_heads(t, value, groups)
        if ampere:
            output = flash_attention(t, query, key, value, sequences=(t.samples or 1) if packed else 0)
        else:
            output = efficient_attention(t, query, key, value, None)
        return tokens_first(t, output), None


class MathSdpa:
    """`scaled_dot_product_attention` for unequal head counts that are not declared as groups (Falcon): in fp32."""

    __slots__ = ()

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        return tokens_first(t, undeclared_groups(t, query, key, value, mask)), None


def undeclared_groups(t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the fused kernel for equal head counts; for unequal ones torch's own products."""
    if query.shape[1] == key.shape[1]:
        return fused_attention(t, query, key, value, mask)
    bias = None if mask is None else t.new(mask.shape, query.dtype)
    output = math_attention(t, query, key, value, causal=False, grouped=False)
    del bias
    return output


@dataclass(frozen=True, slots=True)
class SinkEager:
    """GPT-OSS: a learned score a head joins each row before the softmax and is dropped after it."""

    sinks: Parameter
    rate: float

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        groups = query.shape[1] // key.shape[1]
        keys = repeat_heads(t, key, groups)
        values = repeat_heads(t, value, groups)
        weights = scale(t, batched(t, query, transpose_last(t, keys)))
        if mask is not None:
            weights = add(t, weights, mask)
        shape = (*weights.shape[:-1], 1)
        sinks = expanded(t, self.sinks, shape)
        combined = cat_last(t, (weights, sinks))
        combined = subtract_max(t, combined)
        probabilities = softmax(t, combined, combined.dtype)
        scores = narrow(t, probabilities, weights.shape)
        weights = cast(t, dropout(t, scores, self.rate), values.dtype)
        output = batched(t, weights, values)
        output = tokens_first(t, output)
        return output, weights


class Eager:
    """Scores written out: (batch, heads, tokens, tokens) several times over, in fp32 for the softmax."""

    __slots__ = ("dropout", "softcap")

    def __init__(self, softcap: float | None = None, rate: float = 0.0) -> None:
        self.softcap = softcap
        self.dropout = rate

    def __call__(self, t: Tape, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        groups = query.shape[1] // key.shape[1]
        keys = repeat_heads(t, key, groups)
        values = repeat_heads(t, value, groups)
        weights = scale(t, batched(t, query, transpose_last(t, keys)))
        if self.softcap is not None:
            weights = scale(t, weights)
            weights = result_activation(t, weights)
            weights = scale(t, weights)
        if mask is not None:
            weights = add(t, weights, mask)
        weights = cast(t, softmax(t, weights), query.dtype)
        weights = dropout(t, weights, self.dropout)
        output = batched(t, weights, values)
        output = tokens_first(t, output)
        return output, weights


def tokens_first(t: Tape, output: Tensor) -> Tensor:
    """`output.transpose(1, 2).contiguous()`, flattened over heads: a copy unless the kernel kept the order of
    tokens."""
    batch, heads, tokens, width = output.shape
    if output.heads_first:
        output = contiguous(t, output)
    return view(t, output, (batch, tokens, heads * width))
