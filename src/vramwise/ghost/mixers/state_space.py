"""State spaces: Mamba 2 (Falcon-H1, Granite 4, Nemotron-H) and Mamba (Jamba), and Falcon's attention beside one.

The scan is summed up as one op: as mamba-ssm's kernels do it where that package is installed, else as transformers'
torch code does (`mamba2_chunk_scan`, `mamba_selective_scan`): in fp32, the scores of every chunk written out.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.mixers import Parts
from vramwise.ghost.mixers.convolution import causal_convolution
from vramwise.ghost.model.attention import AttentionLayer, Tables
from vramwise.ghost.model.kernels import Attended
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.elementwise import activation, add, add_scalar, cast, mul, rsqrt, scale, square, to_float
from vramwise.ghost.ops.general import Wanted, general
from vramwise.ghost.ops.reduce import mean_last
from vramwise.ghost.ops.shape import narrow
from vramwise.ghost.tape import Parameter, Tape, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The sizes of a scan; `chunk` 0: Mamba's, without heads, token by token."""

    width: int
    heads: int
    state: int
    groups: int
    chunk: int

    @property
    def convolved(self) -> int:
        """How wide the convolution is: Mamba 2 also convolves B and C."""
        return self.width + 2 * self.groups * self.state if self.chunk else self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """in → gate and x; convolution; scan; gate (and norm); out."""

    scan: Scan
    into: Projection
    weight: Parameter
    bias: Parameter | None
    norm: Parameter | None
    rates: tuple[Projection, ...]  # Mamba's x_proj and dt_proj
    out: Projection
    fused: bool
    scaled: bool

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the mixed hidden states, and attention weights where there are any."""
        batch, tokens = hidden.shape[:2]
        if self.scaled:
            hidden = scale(t, hidden)
        projected = self.into(t, hidden)
        if self.scaled:
            projected = scale(t, projected)
        gate = narrow(t, projected, (batch, tokens, self.scan.width))
        x = narrow(t, projected, (batch, tokens, self.scan.convolved))
        x = causal_convolution(t, x, self.weight, self.bias, activated=True)
        for layer in self.rates:
            layer(t, x) if layer is self.rates[0] else None
        x = self._scanned(t, x)
        x = self._gated(t, x, gate)
        return self.out(t, cast(t, x, hidden.dtype)), None

    def _scanned(self, t: Tape, x: Tensor) -> Tensor:
        batch, tokens = x.shape[:2]
        scan = self.scan
        shape = (batch, tokens, scan.width)
        if self.fused:
            states = batch * -(-tokens // (scan.chunk or tokens)) * scan.width * scan.state
            wide = batch * tokens * scan.width * x.dtype.size
            return general(
                t, (x,), shape, x.dtype, saved=(x,), made=[(shape, x.dtype)], scratch=(4 * states, 4 * states, wide)
            )
        if scan.chunk:
            made, scratch = _torch_chunks(scan, batch, tokens, t.autocast)
        else:
            made, scratch = _torch_tokens(scan, batch, tokens)
        return general(t, (x,), shape, FP32, saved=(x,), made=made, scratch=scratch)

    def _gated(self, t: Tape, x: Tensor, gate: Tensor) -> Tensor:
        if self.norm is None:
            return mul(t, x, activation(t, gate))
        x = mul(t, to_float(t, x), activation(t, to_float(t, gate)))
        x = mul(t, x, rsqrt(t, add_scalar(t, mean_last(t, square(t, x)))))
        return mul(t, self.norm, cast(t, x, gate.dtype))


def _torch_chunks(scan: Scan, batch: int, tokens: int, half: DType | None) -> tuple[list[Wanted], tuple[int, ...]]:
    """Mamba 2: x, B and C for every head and B decayed, the scores of each chunk, states twice.

    Autocast copies what goes into products, and those copies are kept: as traced from transformers 5.23.
    """
    chunks = -(-tokens // scan.chunk)
    rows = batch * chunks * scan.chunk
    wide, inner = rows * scan.width, rows * scan.heads * scan.state
    scores = rows * scan.chunk * scan.heads
    each = batch * scan.width * scan.state
    states = (chunks + 1) * each
    sizes = [wide] * 4 + [inner] * 3 + [scores] * 3 + [states, chunks * each]
    made: list[Wanted] = [((size,), FP32) for size in sizes]
    if half is not None:
        copies = [inner] * 3 + [scores] * 2 + [wide] * 2 + [states, chunks * each]
        made = [((size,), FP32) for size in (wide, wide, wide, inner, scores)]
        made += [((size,), half) for size in copies]
    return made, (4 * scores, 4 * scores, 4 * inner, 4 * inner, 4 * wide, 4 * states)


def _torch_tokens(scan: Scan, batch: int, tokens: int) -> tuple[list[Wanted], tuple[int, ...]]:
    """Mamba: the discretised A and B and every state in fp32, the states once more in bf16.

    Each is (batch, width, tokens, state). Backward adds up the gradients of A and B, each with zeros as large for every
    token.
    """
    wide, inner = batch * tokens * scan.width, batch * tokens * scan.width * scan.state
    return [((size,), FP32) for size in (wide, wide, inner, inner, inner, inner // 2)], (
        4 * inner,
        4 * inner,
        4 * inner,
        4 * wide,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Falcon-H1: the same input through a state space and through attention; both results are scaled and added."""

    space: AttentionLayer
    attention: AttentionLayer

    def __call__(self, t: Tape, hidden: Tensor, tables: Tables | None, mask: Tensor | None) -> Attended:
        """Return the mixed hidden states, and attention weights where there are any."""
        scanned, _ = self.space(t, hidden, tables, mask)
        scanned = scale(t, scanned)
        attended, weights = self.attention(t, scale(t, hidden), tables, mask)
        return add(t, scanned, scale(t, attended)), weights


def state_space(parts: Parts) -> AttentionLayer:
    """Return from a block's weights; the part is called `mamba` or `mixer`."""
    place = "mamba" if parts.has("mamba.in_proj") else "mixer"
    size = parts.model.size
    weight = parts.weight(f"{place}.conv1d.weight")
    assert weight is not None
    rates = ("x_proj", "dt_proj") if parts.has(f"{place}.x_proj") else ()
    return StateSpace(
        scan=Scan(
            width=size("state_width"),
            heads=size("state_heads"),
            state=size("state_size"),
            groups=size("state_groups"),
            chunk=size("state_chunk"),
        ),
        into=parts.linear(f"{place}.in_proj"),
        weight=weight,
        bias=parts.weight(f"{place}.conv1d.bias"),
        norm=parts.weight(f"{place}.norm.weight"),
        rates=tuple(parts.linear(f"{place}.{name}") for name in rates),
        out=parts.linear(f"{place}.out_proj"),
        fused=parts.fused,
        scaled=size("state_scaled") > 0,
    )


def beside_state_space(parts: Parts) -> AttentionLayer:
    """Falcon-H1's two, from a block's weights."""
    return Beside(space=state_space(parts), attention=parts.attention())
