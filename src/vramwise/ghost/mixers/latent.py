"""Latent attention (MLA): keys and values come from a low rank, positions turn a part of each head that stands apart.

As transformers 5 runs DeepSeek's models (`modeling_deepseek_v3.py`): no absorbed matrices, keys and values of all heads
are written out. Where heads of values are narrower than those of queries, flash attention pads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.mixers import Parts
from vramwise.ghost.model.attention import AttentionLayer, Tables
from vramwise.ghost.model.kernels import Attended, Flash, Kernel, Sdpa
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.model.rotary import Rotation
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.ops.shape import expanded, narrow, swap_heads
from vramwise.ghost.tape import Tape, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Queries through a rank of their own or not; keys and values through a common one."""

    heads: int
    plain: int  # the part of a head that is not turned
    turned: int
    value: int
    rank: int
    query: tuple[Projection, Norm, Projection] | Projection
    down: Projection
    norm: Norm
    up: Projection
    out: Projection
    kernel: Kernel
    rotate: Rotation | None

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        batch, tokens = hidden.shape[:2]
        query = self._query(t, hidden)
        query = swap_heads(t, query, (batch, self.heads, tokens, self.plain + self.turned))
        query_plain = narrow(t, query, (batch, self.heads, tokens, self.plain))
        query_turned = narrow(t, query, (batch, self.heads, tokens, self.turned))
        compressed = self.down(t, hidden)
        latent = narrow(t, compressed, (batch, tokens, self.rank))
        key_turned = narrow(t, compressed, (batch, 1, tokens, self.turned))
        both = self.up(t, self.norm(t, latent))
        both = swap_heads(t, both, (batch, self.heads, tokens, self.plain + self.value))
        key_plain = narrow(t, both, (batch, self.heads, tokens, self.plain))
        value = narrow(t, both, (batch, self.heads, tokens, self.value))
        if self.rotate is not None and tables is not None:
            query_turned, key_turned = self.rotate(t, query_turned, key_turned, *tables)
        key_turned = expanded(t, key_turned, (batch, self.heads, tokens, self.turned))
        query = _joined(t, query_plain, query_turned)
        key = _joined(t, key_plain, key_turned)
        output, weights = attended(t, self.kernel, query, key, value, mask)
        output = self.out(t, output)
        del query_plain, query_turned, key_plain, key_turned, latent
        return output, weights

    def _query(self, t: Tape, hidden: Tensor) -> Tensor:
        if not isinstance(self.query, tuple):
            return self.query(t, hidden)
        down, norm, up = self.query
        return up(t, norm(t, down(t, hidden)))


def attended(t: Tape, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
    """torch's own kernels take narrower values as they are; the flash-attention library gets them padded."""
    (batch, heads, tokens, width), narrow_width = query.shape, value.shape[-1]
    if narrow_width == width or not isinstance(kernel, Sdpa | Flash):
        return kernel(t, query, key, value, mask)
    shape = (batch, tokens, heads * narrow_width)
    if isinstance(kernel, Flash):
        output, weights = kernel(t, query, key, _as_wide(t, value, width), mask)
        return narrow(t, output, shape), weights
    value, key, query = autocast_input(t, value), autocast_input(t, key), autocast_input(t, query)
    # the kernel keeps its result in the queries' memory order, heads first; the projection gets a copy
    made = [((batch, heads, tokens, narrow_width), query.dtype), ((batch, heads, tokens), FP32)]
    scratch = (4 * batch * heads * tokens + 4 * query.numel + 256,)
    saved = (query, key, value)
    return general(t, saved, shape, query.dtype, saved=saved, made=made, scratch=scratch), None


def _joined(t: Tape, left: Tensor, right: Tensor) -> Tensor:
    """`torch.cat` along the width of the heads."""
    shape = (*left.shape[:-1], left.shape[-1] + right.shape[-1])
    out = general(t, (left, right), shape, left.dtype)
    out.heads_first = True
    return out


def _as_wide(t: Tape, value: Tensor, width: int) -> Tensor:
    """Values padded to the width of the queries; themselves where they are as wide."""
    if value.shape[-1] >= width:
        return value
    return general(t, (value,), (*value.shape[:-1], width), value.dtype)


def latent_attention(parts: Parts) -> AttentionLayer:
    """Return the layer, from a block's weights."""
    model = parts.model
    query: tuple[Projection, Norm, Projection] | Projection
    if parts.has("self_attn.q_a_proj"):
        normed = parts.norm("self_attn.q_a_layernorm")
        assert normed is not None
        query = parts.linear("self_attn.q_a_proj"), normed, parts.linear("self_attn.q_b_proj")
    else:
        query = parts.linear("self_attn.q_proj")
    norm = parts.norm("self_attn.kv_a_layernorm")
    assert norm is not None
    return LatentAttention(
        heads=model.num_attention_heads,
        plain=model.size("qk_nope_head_dim"),
        turned=model.size("qk_rope_head_dim"),
        value=model.size("v_head_dim"),
        rank=model.size("kv_lora_rank"),
        query=query,
        down=parts.linear("self_attn.kv_a_proj_with_mqa"),
        norm=norm,
        up=parts.linear("self_attn.kv_b_proj"),
        out=parts.linear("self_attn.o_proj"),
        kernel=parts.kernel,
        rotate=parts.rotate,
    )
