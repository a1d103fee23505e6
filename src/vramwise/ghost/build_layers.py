"""Which layer a name, or a word of a family's block facts, stands for: projections, norms, fused LoRA kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.model.attention import AttentionLayer, ChunkedAttention, FalconAttention, SlicedAttention
from vramwise.ghost.model.compiled import AddedLoraLinear, CompiledNorm
from vramwise.ghost.model.fused_lora import FusedLoraLinear, FusedLoraMlp, FusedLoraQkv
from vramwise.ghost.model.liger import LigerNorm
from vramwise.ghost.model.linear import (
    AddedBias,
    Conv1d,
    Dora,
    DoraLinear,
    Linear4bit,
    Linear8bit,
    LoraLinear,
    OftLinear,
    Projection,
    QuantisedLoraLinear,
)
from vramwise.ghost.model.mlp import PlainMlp
from vramwise.ghost.model.norms import CohereNorm, GemmaNorm, LayerNorm, Norm, RmsNorm, WideRmsNorm
from vramwise.ghost.model.rotary import (
    Rotation,
    rotate,
    rotate_halves,
    rotate_in_fp32,
    rotate_inline,
    rotate_part,
    rotate_then_join,
    rotate_wide,
)
from vramwise.ghost.ops.elementwise import activation
from vramwise.ghost.ops.fused_lora import Fused
from vramwise.ghost.ops.quantised import dequantised
from vramwise.ghost.tape import Parameter
from vramwise.ghost.weights import Weights
from vramwise.models.families.base import FusedAttention
from vramwise.models.families.base import Rotation as RotationWord


def projection(weights: Weights, name: str) -> Projection:
    """Return the linear layer of that name, with its adapter if it has one."""
    run = weights.run
    bias = weights.get(f"{name}.bias")
    shape = weights.shapes.get(f"{name}.weight")
    base: Projection
    kind = weights.block.linear
    if shape is None and kind == "transposed" and name != "lm_head":
        base = Conv1d(weights.by_name[f"{name}.weight"], bias)
    elif shape is None and kind == "bias added apart" and bias is not None:
        base = AddedBias(weights.by_name[f"{name}.weight"], bias)
    elif shape is None:
        base = weights.multiplier(weights.by_name[f"{name}.weight"], bias)
    elif run.loading.quantization == "8bit":
        model = weights.model
        gated = run.loading.int8_outliers and model.gated_mlp and name.endswith("down_proj")
        # a compiled graph keeps what its backward pass needs; a layer with an adapter is left out of it
        forgets = weights.compiled and name not in weights.adapters and not name.endswith(weights.block.attention)
        width = model.hidden_size if gated else None
        base = Linear8bit((shape[0], shape[1]), width, keeps=not forgets, trained=not model.random_weights)
    else:
        base = Linear4bit(
            (shape[0], shape[1]), bias, BY_NAME[run.precision.weights_dtype], nested=run.loading.nested_scales
        )
    rotation = weights.rotations.get(name)
    if rotation is not None:
        assert run.adapter.lora_r is not None
        return OftLinear(base, rotation, run.adapter.lora_r, quantised=shape is not None)
    pair = weights.adapters.get(name)
    if pair is None:
        return base
    magnitude = weights.magnitudes.get(name)
    if magnitude is not None:
        return _dora(weights, name, base, pair, magnitude)
    if weights.compiled:
        return AddedLoraLinear(base, pair[0], pair[1], run.adapter.lora_dropout)
    if shape is not None:
        return QuantisedLoraLinear(
            base, pair[0], pair[1], run.adapter.lora_dropout, clones=run.loading.quantization == "4bit"
        )
    return LoraLinear(base, pair[0], pair[1], run.adapter.lora_dropout)


def _dora(
    weights: Weights, name: str, base: Projection, pair: tuple[Parameter, Parameter], magnitude: Parameter
) -> Projection:
    quantised = weights.shapes.get(f"{name}.weight")
    shape = quantised or weights.by_name[f"{name}.weight"].shape
    dora = Dora(shape, pair[0], pair[1], magnitude, weights.get(f"{name}.bias"))
    if quantised is None:
        parameter = weights.by_name[f"{name}.weight"]
        return DoraLinear(base, lambda t: parameter, dora, weights.run.adapter.lora_dropout, quantised=False)
    compute = BY_NAME[weights.run.precision.weights_dtype]
    of = partial(dequantised, shape=shape, dtype=compute, nested=weights.run.loading.nested_scales)
    return DoraLinear(base, of, dora, weights.run.adapter.lora_dropout, quantised=True)


NORMS: dict[str, Callable[[Parameter], Norm]] = {
    "stock": RmsNorm,
    "one plus weight": GemmaNorm,
    "weight in fp32": WideRmsNorm,
    "layer without bias": CohereNorm,
}
FUSED_ATTENTION: dict[FusedAttention, Callable[..., AttentionLayer]] = {
    "cut by width": SlicedAttention,
    "cut head by head": ChunkedAttention,
    "cut in thirds": partial(ChunkedAttention, by_head=False),
    "copied by index": FalconAttention,
}
ROTATIONS: dict[RotationWord, Rotation] = {
    "whole": rotate,
    "part": rotate_part,
    "parts, then joined": rotate_then_join,
    "inside attention": rotate_inline,
    "in fp32 tables": rotate_wide,
    "halves": rotate_halves,
    "in fp32": rotate_in_fp32,
}


class Norms:
    """Builds norms by their names."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.facts = weights.block

    @property
    def own_layers(self) -> bool:
        """Whether the trainer's own kernels run the parts of a block."""
        return self.model.model_type in self.run.kernels.fused_layers

    def norm(self, name: str) -> Norm:
        """Return the norm of that name, of the family's kind."""
        weight, rms = self.weights.get(f"{name}.weight"), self.model.norm == "rms"
        if weight is None or (not rms and self.facts.norm == "stock"):
            return LayerNorm(weight, self.weights.get(f"{name}.bias"))
        if rms and self.own_layers:
            return LigerNorm(weight, in_place=self.facts.norm == "stock")
        if rms and self.weights.compiled:
            return CompiledNorm(weight)
        if rms and "rms_norm" in self.run.kernels.liger and not self._left_by_liger(name):
            return LigerNorm(weight, in_place=self.facts.liger_norm_in_place)
        return NORMS[self.facts.norm](weight)

    def _left_by_liger(self, name: str) -> bool:
        """Where Liger replaces the norms of a model that is built already, most heads keep theirs."""
        of_heads = name.endswith(self.facts.head_norms)
        return of_heads and not self.run.kernels.liger_before_build and not self.facts.liger_takes_head_norms

    def norm_or_none(self, name: str) -> Norm | None:
        """Return the same, or None where the model has no such norm."""
        return self.norm(name) if self.weights.get(f"{name}.weight") is not None else None


_MLP = ("gate_proj", "up_proj", "down_proj")


class FusedKernels:
    """Gives a layer's kernel, or None where it has none."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.run = weights.run
        self.attention = weights.block.attention
        self.rate = weights.run.adapter.lora_dropout
        self.in_place = weights.run.adapter.fused_lora_in_place
        self.traced = weights.run.adapter.fused_lora_traced

    def qkv(self, start: str) -> FusedLoraQkv | None:
        """Query, key and value, unless a norm over all heads stands between the projections and the heads."""
        if self.weights.model.qk_norm == "full":
            return None
        parts = self._parts("qkv", start, self.attention[:3])
        return (
            None if parts is None else FusedLoraQkv((parts[0], parts[1], parts[2]), self.rate, in_place=self.in_place)
        )

    def out(self, start: str) -> FusedLoraLinear | None:
        """Return the output projection of attention."""
        parts = self._parts("o", start, self.attention[3:])
        return None if parts is None else FusedLoraLinear(parts[0], self.rate, in_place=self.in_place)

    def mlp(self, place: str) -> FusedLoraMlp | None:
        """Return a gated feed-forward layer."""
        parts = self._parts("mlp", place, _MLP)
        return (
            None
            if parts is None
            else FusedLoraMlp((parts[0], parts[1], parts[2]), self.rate, in_place=self.in_place, traced=self.traced)
        )

    def squared_mlp(self, place: str, names: tuple[str, str]) -> PlainMlp | None:
        """Two projections with a squared ReLU between them."""
        parts = self._parts("mlp", place, names) if self.run.adapter.fused_lora_squared else None
        if parts is None:
            return None
        up, down = [FusedLoraLinear(part, self.rate) for part in parts]
        return PlainMlp(up, down, activation)  # the kernel between them saves its input alone, as a SiLU does

    def _parts(self, kernel: str, start: str, names: tuple[str, ...]) -> list[Fused] | None:
        places = [f"{start}{name}" for name in names]
        readable = self.run.loading.quantization in (None, "4bit")
        if (
            kernel not in self.run.adapter.fused_lora
            or not readable
            or not all(p in self.weights.adapters for p in places)
        ):
            return None
        parts = [self._part(place) for place in places]
        return None if self.in_place and not self._takes(parts) else parts

    def _takes(self, parts: list[Fused]) -> bool:
        """Kernels that write in place know some models, and neither a bias nor DoRA."""
        known = self.weights.model.model_type in self.run.kernels.fused_layers
        return known and not any(part.biased or part.magnitude is not None for part in parts)

    def scratch_bytes(self) -> int:
        """Return the largest 4-bit weight that such kernels open into one buffer; 0 where there is none."""
        if not self.in_place or self.traced or self.run.loading.quantization != "4bit" or self.rate:
            return 0
        if self.weights.model.model_type not in self.run.kernels.fused_layers:
            return 0
        shapes = [self.weights.shapes.get(f"{place}.weight") for place in self.weights.adapters]
        compute = BY_NAME[self.run.precision.weights_dtype]
        return max([shape[0] * shape[1] * compute.size for shape in shapes if shape is not None], default=0)

    def _part(self, place: str) -> Fused:
        weights = self.weights
        packed = weights.shapes.get(f"{place}.weight")
        weight = None if packed else weights.by_name[f"{place}.weight"]
        shape = weight.shape if weight is not None else packed
        assert shape is not None
        down, up = weights.adapters[place]
        return Fused(
            shape=(shape[0], shape[1]),
            weight=weight,
            compute=BY_NAME[self.run.precision.weights_dtype],
            down=down,
            up=up,
            magnitude=weights.magnitudes.get(place),
            biased=weights.get(f"{place}.bias") is not None,
            wide_grads=self.run.adapter.fused_lora_wide_grads,
        )
