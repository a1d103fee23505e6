"""Which layers of a model run their LoRA in fused kernels: those that the run names, where every projection of a kernel
has an adapter. The others stay as they are, as the trainers leave them."""

from __future__ import annotations

from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.model.fused_lora import FusedLoraLinear, FusedLoraMlp, FusedLoraQkv
from vramwise.ghost.model.mlp import PlainMlp
from vramwise.ghost.ops.elementwise import activation
from vramwise.ghost.ops.fused_lora import Fused
from vramwise.ghost.weights import Weights

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
        """The output projection of attention."""
        parts = self._parts("o", start, self.attention[3:])
        return None if parts is None else FusedLoraLinear(parts[0], self.rate, in_place=self.in_place)

    def mlp(self, place: str) -> FusedLoraMlp | None:
        """A gated feed-forward layer."""
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
        """The largest 4-bit weight that such kernels open into one buffer; 0 where there is none."""
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
