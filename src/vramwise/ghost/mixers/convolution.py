"""A causal convolution over a few tokens, channel by channel, and LFM2's block around one.

transformers' torch code (`causal_conv1d_fn`): `F.conv1d` with padding on both sides, cut to the sequence. The package
causal-conv1d does the same in one kernel and without the padding; the difference is a few tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.mixers import Parts
from vramwise.ghost.model.attention import AttentionLayer, Tables
from vramwise.ghost.model.kernels import Attended
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.elementwise import activation, mul
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.shape import chunk_last, contiguous, narrow
from vramwise.ghost.tape import Parameter, Tape, Tensor


def causal_convolution(t: Tape, x: Tensor, weight: Parameter, bias: Parameter | None, *, activated: bool) -> Tensor:
    """Each channel over its last tokens: the input is saved, and before an activation the result too."""
    batch, tokens, channels = x.shape
    taps = weight.shape[-1]
    inputs = (x, weight) if bias is None else (x, weight, bias)
    out = general(t, inputs, (batch, tokens + taps - 1, channels), x.dtype, saved=(x, weight))
    out = narrow(t, out, (batch, tokens, channels))
    return activation(t, out) if activated else out


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution:
    """in → (B, C, x); the convolution of B · x; times C; out."""

    into: Projection
    weight: Parameter
    bias: Parameter | None
    out: Projection

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the mixed hidden states, and attention weights where there are any."""
        before, after, x = chunk_last(t, self.into(t, hidden), 3)
        x = causal_convolution(t, mul(t, before, x), self.weight, self.bias, activated=False)
        x = contiguous(t, mul(t, after, x))
        return self.out(t, x), None


def short_convolution(parts: Parts) -> AttentionLayer:
    """LFM2's, from a block's weights."""
    weight = parts.weight("conv.conv.weight")
    assert weight is not None
    return ShortConvolution(
        into=parts.linear("conv.in_proj"),
        weight=weight,
        bias=parts.weight("conv.conv.bias"),
        out=parts.linear("conv.out_proj"),
    )
