"""The gated delta net of Qwen3-Next and Qwen3.5, and Kimi's delta attention.

Projections, a short convolution, the delta rule, a gated norm, the output projection, as `modeling_qwen3_5.py` of
transformers 5.22 has them. The rule itself is summed up as one op: as fla-core 0.5 does it where that is installed
(`ChunkGatedDeltaRuleFunction`), else as transformers' `torch_chunk_gated_delta_rule`, in fp32 and chunks of 64 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.mixers import Parts
from vramwise.ghost.mixers.convolution import causal_convolution
from vramwise.ghost.model.attention import AttentionLayer, Tables
from vramwise.ghost.model.kernels import Attended
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.elementwise import activation, add_scalar, cast, mul, result_activation, rsqrt, square, to_float
from vramwise.ghost.ops.general import Wanted, general
from vramwise.ghost.ops.reduce import mean_last
from vramwise.ghost.ops.shape import cat_last, narrow, view
from vramwise.ghost.tape import Parameter, Tape, Tensor

CHUNK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaHeads:
    """Heads of keys (and queries) and of values, and how wide they are."""

    keys: int
    values: int
    key_width: int
    value_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRule:
    """The layer. `into`: projections to q, k and v; `gate`: to the output's gate; `rates`: to beta and the decay."""

    heads: DeltaHeads
    into: tuple[Projection, ...]
    gate: tuple[Projection, ...]
    rates: tuple[Projection, ...]
    convolution: Parameter
    norm: Parameter
    out: Projection
    fused: bool
    by_channel: bool = False  # decays differ from channel to channel (Kimi)
    gated_together: bool = False  # one projection gives q, k, v and the gate: each is copied out of it

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the mixed hidden states, and attention weights where there are any."""
        batch, tokens = hidden.shape[:2]
        heads = self.heads
        mixed, z = self._projected(t, hidden)
        rates = [_chain(t, (layer,), hidden) for layer in self.rates]
        mixed = causal_convolution(t, mixed, self.convolution, None, activated=True)
        rates = [result_activation(t, to_float(t, rate)) for rate in rates]
        key_size = heads.keys * heads.key_width
        query = narrow(t, mixed, (batch, tokens, key_size))
        key = narrow(t, mixed, (batch, tokens, key_size))
        value = narrow(t, mixed, (batch, tokens, heads.values * heads.value_width))
        wide = (batch, tokens, heads.values, heads.key_width)
        if heads.values != heads.keys:
            query = general(t, (query,), wide, query.dtype)
            key = general(t, (key,), wide, key.dtype)
        inputs = (query, key, value, *rates)
        mixed = _kernel(t, heads, inputs) if self.fused else _written_out(t, heads, inputs, by_channel=self.by_channel)
        del inputs
        del query, key, value
        rows = (batch * tokens * heads.values, heads.value_width)
        mixed = _gated_norm(t, view(t, mixed, rows), view(t, z, rows), self.norm)
        return self.out(t, view(t, mixed, (batch, tokens, heads.values * heads.value_width))), None

    def _projected(self, t: Tape, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """q, k and v in one tensor, and the gate."""
        heads = self.heads
        batch, tokens = hidden.shape[:2]
        made = [layer(t, hidden) for layer in self.into]
        mixed = made[0] if len(made) == 1 else cat_last(t, tuple(made))
        if not self.gated_together:
            return mixed, _chain(t, self.gate, hidden)
        size = heads.values * heads.value_width
        z = general(t, (mixed,), (batch, tokens, size), mixed.dtype)
        width = 2 * heads.keys * heads.key_width + size
        return general(t, (mixed,), (batch, tokens, width), mixed.dtype), z


def _chain(t: Tape, layers: tuple[Projection, ...], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(t, x)
    return x


def _kernel(t: Tape, heads: DeltaHeads, inputs: tuple[Tensor, ...]) -> Tensor:
    """fla-core: normed queries and keys, cumulated decays and a triangle a chunk are saved; states are made again."""
    query, _key, value = inputs[:3]
    batch, tokens = value.shape[:2]
    dtype = value.dtype
    wide = (batch, tokens, heads.values, heads.key_width)
    out = (batch, tokens, heads.values, heads.value_width)
    keys = batch * tokens * heads.values * heads.key_width * dtype.size
    values = batch * tokens * heads.values * heads.value_width * dtype.size
    chunks = -(-tokens // CHUNK)
    states = batch * chunks * heads.values * heads.key_width * heads.value_width * dtype.size
    before = [t.new(wide, dtype), t.new(out, dtype), t.scratch(states), t.new(out, dtype)]  # w, u, h, v_new
    made = [
        (wide, dtype),
        (wide, dtype),
        ((batch, tokens, heads.values), FP32),
        ((batch, tokens, heads.values, CHUNK), dtype),
        ((batch, tokens, heads.values), FP32),
        ((batch, tokens, heads.values), FP32),
    ]
    result = general(
        t,
        inputs,
        out,
        query.dtype,
        saved=(value, *inputs[3:]),
        made=made,
        scratch=(keys, values, states, values, values, states, keys, keys),
    )
    del before
    return result


def _written_out(t: Tape, heads: DeltaHeads, inputs: tuple[Tensor, ...], *, by_channel: bool) -> Tensor:
    """transformers' torch code in fp32: what its ops save, one by one.

    Chunks are worked on one after the other. Gradients of what chunks are cut from are as large as the whole for every
    chunk, and added up.
    """
    batch, tokens = inputs[2].shape[:2]
    chunks = -(-tokens // CHUNK)
    rows = batch * heads.values * chunks * CHUNK
    keys, values, triangle = rows * heads.key_width, rows * heads.value_width, rows * CHUNK
    state = batch * heads.values * heads.key_width * heads.value_width
    # queries and keys before their norm and after it, values, and what the triangle is solved for
    made: list[Wanted] = [((keys,), FP32)] * 5
    made += [((values,), FP32)] + [((state,), FP32)] * (chunks - 1)
    scratch = [4 * keys] * 3 + [4 * values] * 2 + [4 * triangle] * 2
    low = t.autocast
    if low is None:  # products save what they are given: the rows of chunks are views
        made += [((keys,), FP32)] * 2 + [((values,), FP32), ((state,), FP32)] + [((triangle,), FP32)] * 2
    else:  # under autocast they save copies in its type, those of the state and the new values twice
        made += [((state,), low)] * (2 * chunks) + [((triangle // chunks,), low)] * chunks
        made += [((keys // chunks,), low)] * (3 * chunks - 3) + [((values // chunks,), low)] * (2 * chunks - 1)
    if by_channel:
        wide = triangle * heads.key_width
        # decays of every channel: their exponents, those of the gate, and what rows are multiplied by
        made += [((keys,), FP32)] * 4 + [((keys // chunks,), FP32)] * (2 * chunks - 1) + _substitution(triangle)
        made += [((wide,), FP32)] * 2 + [((wide // chunks,), FP32)] * chunks
        made += [((keys,), low or FP32), ((values,), low or FP32)] + [((triangle,), low or FP32)] * 2
        scratch = [4 * wide] * 2 + scratch
    else:
        made += [((keys,), FP32), ((values,), FP32)] + [((triangle,), FP32)] * 2
        made += [] if low is None else [((keys,), low)] * 4
        made += [((triangle,), low or FP32)] * (1 if low is None else 2)
    passing = [t.new((values,), FP32), t.new((keys,), FP32)]  # beta · v and the decayed beta · k
    out = (batch, tokens, heads.values, heads.value_width)
    result = general(t, inputs, out, inputs[0].dtype, made=made, scratch=scratch)
    del passing
    return result


def _substitution(triangle: int) -> list[Wanted]:
    """Forward substitution row by row: each saves its row and the triangle above it."""
    each = triangle // CHUNK**2
    return [((each * (row + row * row),), FP32) for row in range(1, CHUNK)]


def _gated_norm(t: Tape, x: Tensor, gate: Tensor, weight: Parameter) -> Tensor:
    """Return an RMS norm in fp32, its result times silu of the gate in fp32."""
    outer = x.dtype
    x = to_float(t, x)
    variance = mean_last(t, square(t, x))
    x = mul(t, x, rsqrt(t, add_scalar(t, variance)))
    x = mul(t, weight, cast(t, x, outer))
    x = mul(t, x, activation(t, to_float(t, gate)))
    return cast(t, x, outer)


def delta_rule(parts: Parts) -> AttentionLayer:
    """Return the layer, from a block's weights: Qwen's names, or Kimi's."""
    return _kimi(parts) if parts.has("self_attn.b_proj") else _qwen(parts)


def _heads(parts: Parts) -> DeltaHeads:
    size = parts.model.size
    return DeltaHeads(
        keys=size("linear_num_key_heads"),
        values=size("linear_num_value_heads"),
        key_width=size("linear_key_head_dim"),
        value_width=size("linear_value_head_dim"),
    )


def _qwen(parts: Parts) -> DeltaRule:
    together = parts.has("linear_attn.in_proj_qkvz")
    rates = ("in_proj_ba",) if together else ("in_proj_b", "in_proj_a")
    weight, norm = parts.weight("linear_attn.conv1d.weight"), parts.weight("linear_attn.norm.weight")
    assert weight is not None
    assert norm is not None
    return DeltaRule(
        heads=_heads(parts),
        into=(parts.linear(f"linear_attn.in_proj_{'qkvz' if together else 'qkv'}"),),
        gate=() if together else (parts.linear("linear_attn.in_proj_z"),),
        rates=tuple(parts.linear(f"linear_attn.{name}") for name in rates),
        convolution=weight,
        norm=norm,
        out=parts.linear("linear_attn.out_proj"),
        fused=parts.fused,
        gated_together=together,
    )


def _kimi(parts: Parts) -> DeltaRule:
    weight, norm = parts.weight("self_attn.conv1d.weight"), parts.weight("self_attn.o_norm.weight")
    assert weight is not None
    assert norm is not None
    return DeltaRule(
        heads=_heads(parts),
        into=tuple(parts.linear(f"self_attn.{name}_proj") for name in "qkv"),
        gate=(parts.linear("self_attn.g_a_proj"), parts.linear("self_attn.g_b_proj")),
        rates=(parts.linear("self_attn.b_proj"),),
        convolution=weight,
        norm=norm,
        out=parts.linear("self_attn.o_proj"),
        fused=parts.fused,
        by_channel=True,
    )
