"""Self-attention of a decoder block: projections, per-head norms, rotary positions, the kernel, the output
projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from vramwise.ghost.model.fused_lora import FusedLoraQkv
from vramwise.ghost.model.kernels import Attended, Kernel
from vramwise.ghost.model.liger import LigerNorm
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.model.rotary import Rotation, rotate_inline
from vramwise.ghost.ops.elementwise import dropout
from vramwise.ghost.ops.shape import chunk_last, contiguous, indexed, narrow, repeat_heads, swap_heads, view
from vramwise.ghost.tape import Tape, Tensor

Tables = tuple[Tensor, Tensor]


class AttentionLayer(Protocol):
    """What a block calls: the output, and the attention weights where the kernel makes them."""

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """How many heads there are, and how wide they are."""

    query: int
    kv: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Separate q, k and v projections."""

    heads: Heads
    q: Projection
    k: Projection
    v: Projection
    o: Projection
    kernel: Kernel
    rotate: Rotation | None
    # norms of each head (after the split) or of the whole projection (before it)
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    norm_whole: bool = False
    # of heads: each where its projection is made, or both after all three (Gemma 3), or after the rotation (HunYuan)
    norms_run: Literal["with each projection", "after projections", "after rotation"] = "with each projection"
    # of the output, inside the layer (StarCoder 2)
    dropout: float = 0.0
    # q, k and v from one kernel: all three are there before the first is split into heads
    qkv: FusedLoraQkv | None = None

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        heads = self.heads
        kept: list[Tensor] = []
        if self.norm_whole or self.qkv is not None:
            query, key, value = self._all_at_once(t, hidden)
        else:
            late = self.norms_run != "with each projection"
            query = split_heads(t, self.q(t, hidden), heads.query, heads.width, None if late else self.q_norm)
            key = split_heads(t, self.k(t, hidden), heads.kv, heads.width, None if late else self.k_norm)
            value = split_heads(t, self.v(t, hidden), heads.kv, heads.width, None)
        if self.norms_run == "after projections" and self.q_norm is not None and self.k_norm is not None:
            query = _normed_heads(t, self.q_norm, query)
            key = _normed_heads(t, self.k_norm, key)
        if self.rotate is rotate_inline and tables is not None:
            query, key = rotate_inline(t, query, key, *tables, kept=kept)
        elif self.rotate is not None and tables is not None:
            query, key = self.rotate(t, query, key, *tables)
        if self.norms_run == "after rotation" and self.q_norm is not None and self.k_norm is not None:
            query = self.q_norm(t, query)
            key = self.k_norm(t, key)
        output, weights = self.kernel(t, query, key, value, mask)
        output = self.o(t, output)
        output = dropout(t, output, self.dropout)
        kept.reverse()  # a list is emptied from its end
        del query, key, value, kept
        return output, weights

    def _all_at_once(self, t: Tape, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v if all three are made before the first is split: by one kernel, or normed as a whole."""
        heads, late = self.heads, self.norm_whole or self.norms_run != "with each projection"
        if self.qkv is not None and not self.norm_whole:
            query, key, value = self.qkv(t, hidden)
        else:
            assert self.q_norm is not None
            assert self.k_norm is not None
            query = self.q_norm(t, self.q(t, hidden))
            key = self.k_norm(t, self.k(t, hidden))
            value = self.v(t, hidden)
        query = split_heads(t, query, heads.query, heads.width, None if late else self.q_norm)
        key = split_heads(t, key, heads.kv, heads.width, None if late else self.k_norm)
        return query, key, split_heads(t, value, heads.kv, heads.width, None)


def split_heads(t: Tape, x: Tensor, heads: int, width: int, norm: Norm | None) -> Tensor:
    """Return a projection's result by heads, each normed if there is a norm."""
    batch, tokens = x.shape[:2]
    if norm is None:
        return view(t, x, (batch, heads, tokens, width))
    split = view(t, x, (batch, tokens, heads, width))
    del x
    return swap_heads(t, norm(t, split), (batch, heads, tokens, width))


def _normed_heads(t: Tape, norm: Norm, x: Tensor) -> Tensor:
    """Return a norm of heads that are split already: Liger's kernel wants them contiguous."""
    return norm.over_heads(t, x) if isinstance(norm, LigerNorm) else norm(t, x)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedAttention:
    """One projection for q, k and v, cut into three along its width (phi-3)."""

    heads: Heads
    qkv: Projection
    o: Projection
    kernel: Kernel
    rotate: Rotation | None
    dropout: float = 0.0

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        fused = self.qkv(t, hidden)
        query, key, value = self._cut(t, fused)
        if self.rotate is not None and tables is not None:
            query, key = self.rotate(t, query, key, *tables)
        output, weights = self.kernel(t, query, key, value, mask)
        output = self.o(t, output)
        output = dropout(t, output, self.dropout)
        return output, weights

    def _cut(self, t: Tape, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens = fused.shape[:2]
        heads = self.heads
        query = narrow(t, fused, (batch, tokens, heads.query * heads.width))
        key = narrow(t, fused, (batch, tokens, heads.kv * heads.width))
        value = narrow(t, fused, (batch, tokens, heads.kv * heads.width))
        query = view(t, query, (batch, heads.query, tokens, heads.width))
        key = view(t, key, (batch, heads.kv, tokens, heads.width))
        return query, key, view(t, value, (batch, heads.kv, tokens, heads.width))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedAttention(SlicedAttention):
    """One projection whose width holds q, k and v head by head (GPT-NeoX), or one after the other (GPT-2)."""

    by_head: bool = True

    def _cut(self, t: Tape, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens = fused.shape[:2]
        heads = self.heads
        if self.by_head:
            fused = view(t, fused, (batch, heads.query, tokens, 3 * heads.width))
            query, key, value = chunk_last(t, fused, 3)
        else:
            shape = (batch, heads.query, tokens, heads.width)
            query, key, value = [view(t, part, shape) for part in chunk_last(t, fused, 3)]
        return query, key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconAttention(SlicedAttention):
    """One projection for all heads; shared key and value heads are copied out of it by an index.

    With several key heads (new architecture) keys and values are repeated for every query head.
    """

    def _cut(self, t: Tape, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens = fused.shape[:2]
        heads = self.heads
        query = narrow(t, fused, (batch, heads.query, tokens, heads.width))
        pick = narrow if heads.kv == heads.query else indexed  # a head of its own each is a slice
        key = pick(t, fused, (batch, heads.kv, tokens, heads.width))
        value = pick(t, fused, (batch, heads.kv, tokens, heads.width))
        if 1 < heads.kv < heads.query:
            query = contiguous(t, query)
            key = repeat_heads(t, key, heads.query // heads.kv)
            value = repeat_heads(t, value, heads.query // heads.kv)
        return query, key, value
