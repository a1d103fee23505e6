"""Mixtures of experts as transformers 5 runs them: a router, and experts as 3-D weights multiplied group by group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.ghost.dtypes import BOOL, FP32, INT32, INT64, DType
from vramwise.ghost.ops.elementwise import activation, add, cast, mul, result_activation, scale
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.quantised import dequantised
from vramwise.ghost.ops.routing import (
    folded_weight,
    gather_rows,
    grouped_product,
    masked_fill,
    masked_fill_in_place,
    normalise_rows,
    sort,
    sum_copies,
    topk,
)
from vramwise.ghost.ops.row_kernels import softmax
from vramwise.ghost.ops.shape import alias, chunk_last, view
from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor
from vramwise.types import ExpertMasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Logits, probabilities in fp32, the best k; normalised or not; cast back to the model's type or not."""

    weight: Parameter
    bias: Parameter | None
    top_k: int
    normalised: bool
    cast_back: bool
    # GPT-OSS takes the best k logits first and the softmax of those
    softmax_last: bool = False
    # DeepSeek: input and weight to fp32 first; autocast takes copies of those back, and the product keeps its copy
    wide: bool = False

    def __call__(self, t: Tape, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(logits, weights, indices): the caller drops them in that order."""
        logits = self._logits(t, hidden)
        if self.softmax_last:
            chosen, indices = topk(t, logits, self.top_k)
            return logits, softmax(t, chosen, chosen.dtype), indices
        probabilities = softmax(t, logits)
        values, indices = topk(t, probabilities, self.top_k)
        if self.normalised:
            values = normalise_rows(t, values)
        if self.cast_back:
            values = cast(t, values, logits.dtype)
        del probabilities
        return logits, values, indices

    def _logits(self, t: Tape, hidden: Tensor) -> Tensor:
        if not self.wide:
            return linear(t, hidden, self.weight, self.bias)
        return linear(t, cast(t, hidden, FP32), cast(t, self.weight, FP32), self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedExperts:
    """Experts' weights that are held quantised: all of them are dequantised where a call first uses them.

    bitsandbytes gives 4-bit weights back in the model's type, and 8-bit ones in fp32.
    """

    shape: tuple[int, ...]
    bits: str
    dtype: DType

    def __call__(self, t: Tape) -> Tensor:
        """Return the weights, for one call; what is multiplied with them keeps them until its backward."""
        return t.new(self.shape, FP32) if self.bits == "8bit" else dequantised(t, self.shape, self.dtype)


ExpertWeight = Parameter | PackedExperts


def opened(t: Tape, weight: ExpertWeight) -> Tensor:
    """Return the weight itself."""
    return weight(t) if isinstance(weight, PackedExperts) else weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts of a layer, by grouped products over tokens sorted by expert."""

    gate_up: ExpertWeight
    down: ExpertWeight
    hidden: int
    intermediate: int
    biased: bool = False
    # GPT-OSS: clamped, with a sigmoid of its own
    clamped: bool = False
    # PEFT's adapters of the two weights: folded into a copy of them at every call
    gate_up_lora: tuple[Parameter, Parameter] | None = None
    down_lora: tuple[Parameter, Parameter] | None = None
    # where rows that belong to no expert are zeroed: at both ends, after each product too, or nowhere
    masks: ExpertMasks = "products"

    def __call__(self, t: Tape, hidden: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        """Every token through its experts, weighted and summed."""
        down_factors = factors_of(t, self.down, self.down_lora)
        gate_up_factors = factors_of(t, self.gate_up, self.gate_up_lora)
        tokens, top_k = indices.shape
        rows = tokens * top_k
        ids, order = sort(t, alias(indices, (rows,)))
        chosen = gather_rows(t, hidden, scale(t, order))
        sample = gather_rows(t, view(t, weights, (rows,)), order)
        narrow_ids = t.new((rows,), INT32)
        counts = t.new((self.gate_up.shape[0],), INT32)
        offsets = t.new((self.gate_up.shape[0],), INT32)
        Storage(t, 1023)
        sentinel = None if self.masks == "none" else t.new((rows, 1), BOOL)
        if sentinel is not None:
            chosen = masked_fill_in_place(t, chosen, sentinel)
        gate_up = folded(t, self.gate_up, gate_up_factors)
        biases = self._biases(t, rows, 2 * self.intermediate, chosen)
        out = self._product(t, chosen, gate_up, offsets, 2 * self.intermediate)
        if sentinel is not None and self.masks == "products":
            out = masked_fill(t, out, sentinel)
        out = self._gate(t, out)
        down = folded(t, self.down, down_factors)
        biases = self._biases(t, rows, self.hidden, out)
        out = self._product(t, out, down, offsets, self.hidden)
        if sentinel is not None and self.masks == "products":
            out = masked_fill(t, out, sentinel)
        weighted = mul(t, out, view(t, sample, (rows, 1)))
        if sentinel is not None and self.masks == "ends":
            weighted = masked_fill_in_place(t, weighted, sentinel)
        inverse = t.new((rows,), INT64)
        t.new((rows,), INT64)
        weighted = gather_rows(t, weighted, inverse)
        final = sum_copies(t, weighted, tokens, FP32 if t.autocast is not None else weighted.dtype)
        result = cast(t, final, hidden.dtype)
        del ids, order, chosen, sample, narrow_ids, counts, offsets, sentinel, biases, out, weighted, inverse, final
        del gate_up_factors, gate_up, down, down_factors
        return result

    def _product(self, t: Tape, x: Tensor, weight: Tensor, offsets: Tensor, outputs: int) -> Tensor:
        return grouped_product(t, cast(t, x, weight.dtype), weight, offsets, outputs)

    def _biases(self, t: Tape, rows: int, width: int, like: Tensor) -> Tensor | None:
        """Each row's bias, gathered by expert and added in place."""
        return t.new((rows, width), like.dtype) if self.biased else None

    def _gate(self, t: Tape, x: Tensor) -> Tensor:
        gate, up = chunk_last(t, x)
        if not self.clamped:
            return mul(t, activation(t, gate), up)
        gate = activation(t, gate)
        up = activation(t, up)
        glu = mul(t, gate, result_activation(t, scale(t, gate)))
        return mul(t, scale(t, up), glu)


def factors_of(t: Tape, packed: ExpertWeight, pair: tuple[Parameter, Parameter] | None) -> tuple[Tensor, Tensor] | None:
    """PEFT's two factors in the weight's type. Installing them folds once, to check the result's shape and type."""
    if pair is None:
        return None
    down, up = pair
    weight = opened(t, packed)
    factors = cast(t, up, weight.dtype), cast(t, down, weight.dtype)
    folded_weight(t, weight, *factors)
    return factors


def folded(t: Tape, packed: ExpertWeight, factors: tuple[Tensor, Tensor] | None) -> Tensor:
    """Return the weight itself, or a copy with its adapter in it, made where it is first used."""
    weight = opened(t, packed)
    return weight if factors is None else folded_weight(t, weight, *factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Router and experts, and a shared expert where there is one."""

    router: Router
    experts: Experts
    shared: Callable[[Tape, Tensor], Tensor] | None = None
    shared_gate: Callable[[Tape, Tensor], Tensor] | None = None

    def __call__(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        shape = hidden.shape
        hidden = view(t, hidden, (shape[0] * shape[1], shape[2]))
        beside = None if self.shared is None else self.shared(t, hidden)
        logits, weights, indices = self.router(t, hidden)
        out = self.experts(t, hidden, weights, indices)
        if beside is not None:
            if self.shared_gate is not None:
                beside = mul(t, result_activation(t, self.shared_gate(t, hidden)), beside)
            out = add(t, out, beside)
        del logits, weights, indices
        return view(t, out, shape)
