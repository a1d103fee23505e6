"""Self-attention of a decoder block: projections, per-head norms, rotary positions, the kernel, the output
projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from vramwise.ghost.model.fused_lora import FusedLoraQkv
from vramwise.ghost.model.kernels import Kernel
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

    def __call__(
        self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend."""
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

    def __call__(
        self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend."""
        heads = self.heads
        kept: list[Tensor] = []
        if self.norm_whole:
            query, key, value = self._normed_whole(t, hidden)
        elif self.qkv is not None:
            query, key, value = self._from_one_kernel(t, hidden, self.qkv)
        else:
            late = self.norms_run != "with each projection"
            query = self._split(t, self.q(t, hidden), heads.query, None if late else self.q_norm)
            key = self._split(t, self.k(t, hidden), heads.kv, None if late else self.k_norm)
            value = self._split(t, self.v(t, hidden), heads.kv, None)
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

    def _from_one_kernel(self, t: Tape, hidden: Tensor, qkv: FusedLoraQkv) -> tuple[Tensor, Tensor, Tensor]:
        heads = self.heads
        late = self.norms_run != "with each projection"
        query, key, value = qkv(t, hidden)
        query = self._split(t, query, heads.query, None if late else self.q_norm)
        key = self._split(t, key, heads.kv, None if late else self.k_norm)
        value = self._split(t, value, heads.kv, None)
        return query, key, value

    def _normed_whole(self, t: Tape, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert self.q_norm is not None
        assert self.k_norm is not None
        query = self.q_norm(t, self.q(t, hidden))
        key = self.k_norm(t, self.k(t, hidden))
        value = self.v(t, hidden)
        heads = self.heads
        return (
            self._split(t, query, heads.query, None),
            self._split(t, key, heads.kv, None),
            self._split(t, value, heads.kv, None),
        )

    def _split(self, t: Tape, x: Tensor, heads: int, norm: Norm | None) -> Tensor:
        batch, tokens = x.shape[:2]
        width = self.heads.width
        if norm is None:
            return view(t, x, (batch, heads, tokens, width))
        split = view(t, x, (batch, tokens, heads, width))
        del x
        return swap_heads(t, norm(t, split), (batch, heads, tokens, width))


def _normed_heads(t: Tape, norm: Norm, x: Tensor) -> Tensor:
    """A norm of heads that are split already: Liger's kernel wants them contiguous."""
    return norm.over_heads(t, x) if isinstance(norm, LigerNorm) else norm(t, x)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedAttention:
    """One projection for q, k and v, cut into three along its width (phi-3)."""

    heads: Heads
    qkv: Projection
    o: Projection
    kernel: Kernel
    rotate: Rotation | None

    def __call__(
        self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend."""
        batch, tokens = hidden.shape[:2]
        heads = self.heads
        fused = self.qkv(t, hidden)
        query = narrow(t, fused, (batch, tokens, heads.query * heads.width))
        key = narrow(t, fused, (batch, tokens, heads.kv * heads.width))
        value = narrow(t, fused, (batch, tokens, heads.kv * heads.width))
        query = view(t, query, (batch, heads.query, tokens, heads.width))
        key = view(t, key, (batch, heads.kv, tokens, heads.width))
        value = view(t, value, (batch, heads.kv, tokens, heads.width))
        if self.rotate is not None and tables is not None:
            query, key = self.rotate(t, query, key, *tables)
        output, weights = self.kernel(t, query, key, value, mask)
        output = self.o(t, output)
        return output, weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedAttention:
    """One projection whose width holds q, k and v head by head (GPT-NeoX), or one after the other (GPT-2)."""

    heads: Heads
    qkv: Projection
    o: Projection
    kernel: Kernel
    rotate: Rotation | None
    by_head: bool = True
    dropout: float = 0.0

    def __call__(
        self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend."""
        batch, tokens = hidden.shape[:2]
        heads = self.heads
        shape = (batch, heads.query, tokens, heads.width)
        if self.by_head:
            fused = view(t, self.qkv(t, hidden), (batch, heads.query, tokens, 3 * heads.width))
            query, key, value = chunk_last(t, fused, 3)
        else:
            fused = self.qkv(t, hidden)
            query, key, value = [view(t, part, shape) for part in chunk_last(t, fused, 3)]
        if self.rotate is not None and tables is not None:
            query, key = self.rotate(t, query, key, *tables)
        output, weights = self.kernel(t, query, key, value, mask)
        output = self.o(t, output)
        output = dropout(t, output, self.dropout)
        return output, weights


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconAttention:
    """One projection for all heads; shared key and value heads are copied out of it by an index."""

    heads: Heads
    qkv: Projection
    o: Projection
    kernel: Kernel
    rotate: Rotation | None

    def __call__(
        self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend. With several key heads (new architecture) keys and values are repeated for every query head."""
        batch, tokens = hidden.shape[:2]
        heads = self.heads
        fused = self.qkv(t, hidden)
        query = narrow(t, fused, (batch, heads.query, tokens, heads.width))
        pick = narrow if heads.kv == heads.query else indexed  # a head of its own each is a slice
        key = pick(t, fused, (batch, heads.kv, tokens, heads.width))
        value = pick(t, fused, (batch, heads.kv, tokens, heads.width))
        if 1 < heads.kv < heads.query:
            query = contiguous(t, query)
            key = repeat_heads(t, key, heads.query // heads.kv)
            value = repeat_heads(t, value, heads.query // heads.kv)
        if self.rotate is not None and tables is not None:
            query, key = self.rotate(t, query, key, *tables)
        output, weights = self.kernel(t, query, key, value, mask)
        output = self.o(t, output)
        return output, weights
