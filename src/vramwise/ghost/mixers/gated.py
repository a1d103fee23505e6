"""Attention whose result is gated (Qwen3-Next, Qwen3.5, Trinity), or whose layers have heads of two widths (Gemma 4).

How wide heads are is read off the weights of the layer itself. Where there is no projection of values, the keys' stands
for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.mixers import Parts
from vramwise.ghost.model.attention import AttentionLayer, Tables, split_heads
from vramwise.ghost.model.kernels import Attended, Kernel
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm, UnscaledRmsNorm
from vramwise.ghost.model.rotary import Rotation, turned
from vramwise.ghost.ops.elementwise import mul, result_activation
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.shape import chunk_last, narrow, view
from vramwise.ghost.tape import Tape, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedAttention:
    """`gate`: a projection of its own, or None: the second half of each head of the queries' one, where `halved`."""

    heads: int
    kv_heads: int
    width: int
    q: Projection
    k: Projection | None  # None: keys and values are those of an earlier layer
    v: Projection | None
    o: Projection
    gate: Projection | None
    halved: bool
    q_norm: Norm | None
    k_norm: Norm | None
    v_norm: Norm | None
    kernel: Kernel
    rotate: Rotation | None
    in_turn: bool  # queries are turned before keys are made (Gemma 3n and 4)

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the output, and the attention weights where the kernel makes them."""
        batch, tokens = hidden.shape[:2]
        gate = None
        query = self.q(t, hidden)
        if self.halved:
            query, gate = chunk_last(t, view(t, query, (batch, tokens, self.heads, 2 * self.width)))
            gate = general(t, (gate,), (batch, tokens, self.heads * self.width), gate.dtype)
        if self.in_turn:
            query, key, value = self._in_turn(t, hidden, query, tables)
        elif self.k is None:
            query = split_heads(t, query, self.heads, self.width, self.q_norm)
            # the shared tensors are not followed from layer to layer: views take their place, which take no memory
            key = value = narrow(t, query, (batch, self.kv_heads, tokens, self.width))
        else:
            key = self.k(t, hidden)
            value = key if self.v is None else self.v(t, hidden)
            query = split_heads(t, query, self.heads, self.width, self.q_norm)
            key = split_heads(t, key, self.kv_heads, self.width, self.k_norm)
            value = split_heads(t, value, self.kv_heads, self.width, self.v_norm)
        if self.gate is not None:
            gate = self.gate(t, hidden)
        if self.rotate is not None and tables is not None and not self.in_turn:
            query, key = self.rotate(t, query, key, *tables)
        output, weights = self.kernel(t, query, key, value, mask)
        if gate is not None:
            output = mul(t, output, result_activation(t, gate))
        output = self.o(t, output)
        del query, key, value, gate
        return output, weights

    def _in_turn(self, t: Tape, hidden: Tensor, query: Tensor, tables: Tables | None) -> tuple[Tensor, Tensor, Tensor]:
        """Normed and turned queries, then keys, then normed values."""
        query = split_heads(t, query, self.heads, self.width, self.q_norm)
        if tables is not None:
            query = turned(t, query, *tables)
        if self.k is None:
            batch, _, tokens, width = query.shape
            # the shared tensors are not followed from layer to layer: views take their place, which take no memory
            key = narrow(t, query, (batch, self.kv_heads, tokens, width))
            return query, key, key
        key = self.k(t, hidden)
        value = key if self.v is None else self.v(t, hidden)
        key = split_heads(t, key, self.kv_heads, self.width, self.k_norm)
        if tables is not None:
            key = turned(t, key, *tables)
        return query, key, split_heads(t, value, self.kv_heads, self.width, self.v_norm)


def gated_attention(parts: Parts) -> AttentionLayer:
    """Return the layer, from a block's weights."""
    model = parts.model
    own_gate = parts.has("self_attn.gate_proj")
    halved = model.size("attention_gate") > 0
    width = parts.rows("self_attn.q_proj") // model.num_attention_heads // (2 if halved else 1)
    return GatedAttention(
        heads=model.num_attention_heads,
        kv_heads=parts.rows("self_attn.k_proj") // width or model.num_key_value_heads,
        width=width,
        q=parts.linear("self_attn.q_proj"),
        k=parts.linear("self_attn.k_proj") if parts.has("self_attn.k_proj") else None,
        v=parts.linear("self_attn.v_proj") if parts.has("self_attn.v_proj") else None,
        o=parts.linear("self_attn.o_proj"),
        gate=parts.linear("self_attn.gate_proj") if own_gate else None,
        halved=halved,
        q_norm=parts.norm("self_attn.q_norm"),
        k_norm=parts.norm("self_attn.k_norm"),
        v_norm=UnscaledRmsNorm() if model.size("value_norm") else None,
        kernel=parts.kernel,
        rotate=parts.rotate,
        in_turn=bool(model.size("value_norm")),
    )
